"""Playbooks, traces and samples as text and files."""
