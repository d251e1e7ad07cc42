"""Patterns of playbook names, such as ``support/*``: the longest one that matches wins; pure."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

T = TypeVar("T")


def longest_match(by_pattern: Mapping[str, T], name: str) -> T | None:
    """Return what the longest pattern that matches a name stands for; None: none matches."""
    matching = (pattern for pattern in by_pattern if fnmatchcase(name, pattern))
    longest = max(matching, key=len, default=None)
    return None if longest is None else by_pattern[longest]
