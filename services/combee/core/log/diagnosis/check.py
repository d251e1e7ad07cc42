"""One check: what was looked at, how it is, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail", "skip"]
"""skip: could not be looked at, because something else failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; whatever is not ok has a remedy."""

    name: str
    verdict: Verdict
    says: str
    remedy: str = ""


def failed(checks: Iterable[Check]) -> bool:
    """Return whether anything is broken; a warning is not."""
    return any(check.verdict == "fail" for check in checks)


def skipped(name: str, because: str) -> Check:
    """Return the check of something that could not be looked at."""
    return Check(name=name, verdict="skip", says=f"not looked at: {because}", remedy="mend that first")


def unanswered(name: str, timeout_s: float, remedy: str) -> Check:
    """Return the check of something that did not answer."""
    return Check(
        name=name,
        verdict="fail",
        says=f"no answer within {timeout_s:g} s",
        remedy=f"{remedy}; --timeout waits longer",
    )
