#!/bin/sh
# Keeps coding assistants' files equal to the playbook about refunds until Ctrl-C; with --once writes once and ends.
# Run it on the machine of "combee up"; elsewhere add --gateway ADDRESS.
combee sync support/refunds \
  --to AGENTS.md \
  --to .claude/skills/refunds/SKILL.md \
  --to .cursor/rules/refunds.mdc \
  "$@"
