"""Lessons in the words of the feedback, and house rules for the curator."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from combee.core.methods import ace
from combee.core.methods.ace import HOLDS, REBASES, answer_prompt, merge, read
from combee.core.methods.method import NO_NAMES
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation
from combee_schemas.trace import Trace

__all__ = ["HOLDS", "REBASES", "answer_prompt", "merge", "read"]

RULES = "House rules: write in the imperative, put names in backticks, never name a customer."
LONGEST = 2_000


def reflect_prompt(trace: Trace, shown: Sequence[Entry]) -> None:
    """Make no call: the feedback is the lesson."""


def read_reflection(
    trace: Trace,
    shown: Sequence[Entry],  # noqa: ARG001 - ACE would say which entries it judges
    body: Mapping[str, Any],  # noqa: ARG001 - no model was called
) -> dict[str, Any]:
    """Return the fields of a reflection; a trace without feedback goes to the dead letters."""
    if not trace.feedback.strip():
        raise ValueError("the run has no feedback")
    return {"key_insight": trace.feedback[:LONGEST]}


def aggregate_prompt(base: Playbook, reflections: Sequence[Reflection]) -> Prompt:
    """Ask as ACE does, with our rules first: they never change, so prompt caches hit."""
    return _with_rules(ace.aggregate_prompt(base, reflections))


def combine_prompt(
    base: Playbook, proposals: Sequence[Operation], names: Mapping[str, str] = NO_NAMES
) -> Prompt:
    """Ask as ACE does, with our rules first."""
    return _with_rules(ace.combine_prompt(base, proposals, names))


def _with_rules(prompt: Prompt) -> Prompt:
    return replace(prompt, system=f"{RULES}\n{prompt.system}")
