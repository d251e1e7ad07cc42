"""One check: its subject, result and remedy."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail", "skip"]
"""skip: the check could not run because another one failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; every result other than ok has a remedy."""

    name: str
    verdict: Verdict
    says: str
    remedy: str = ""


def failed(checks: Iterable[Check]) -> bool:
    """Return whether anything is broken; warnings do not count."""
    return any(check.verdict == "fail" for check in checks)


def skipped(name: str, because: str) -> Check:
    """Return the check of a subject that could not be examined."""
    return Check(name=name, verdict="skip", says=f"not looked at: {because}", remedy="mend that first")


def unanswered(name: str, timeout_s: float, remedy: str) -> Check:
    """Return the check of a subject that did not answer."""
    return Check(
        name=name,
        verdict="fail",
        says=f"no answer within {timeout_s:g} s",
        remedy=f"{remedy}; --timeout waits longer",
    )
