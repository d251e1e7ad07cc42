"""Which callers are shown the candidate: a stable share; pure.

All other named callers are the control at the same time: a control of the share's size would give no better
protection against drift, and would take nearly twice as many candidate callers.
"""

from dataclasses import replace

from combee.core.gate.gate import Gate
from combee.core.gate.policy import CanaryPolicy
from combee_schemas.canary import CanaryTerms
from combee_schemas.digests import digest
from combee_schemas.playbook import Label

HASHES = 1 << 64


def with_canary(gate: Gate, policy: CanaryPolicy, *, now_ms: int) -> Gate:
    """Return a gate whose candidate has a canary, if that is one of its judges.

    When the production version changes, the canary begins anew.
    """
    label = gate.candidate
    if label is None:
        return gate
    terms, control = None, gate.production.version
    if "canary" in gate.judges:
        is_known = label.canary is not None and label.canary.control == control
        terms = label.canary if is_known else policy.terms(label.playbook, label.version, control, now_ms)
    return (
        gate if terms == label.canary else replace(gate, candidate=label.model_copy(update={"canary": terms}))
    )


def terms_of(candidate: Label | None) -> CanaryTerms | None:
    """Return the terms of the running canary; None: there is none."""
    return candidate.canary if candidate else None


def is_over(terms: CanaryTerms, now_ms: int) -> bool:
    """Return whether the deadline has passed: then no reader shows the candidate, not even one offline."""
    return now_ms >= terms.deadline_ms


def place_of(playbook: str, terms: CanaryTerms, caller: str) -> str:
    """Return the place of a caller; empty without a name: unnamed callers take no part."""
    if not caller:
        return ""
    return f"{terms.candidate}-{digest('canary', playbook, terms.candidate, terms.salt, caller)[:8].hex()}"


def version_for(place: str, terms: CanaryTerms) -> int:
    """Return the version for the caller at a place."""
    return terms.candidate if place and in_share(caller_at(place), terms) else terms.control


def caller_at(place: str) -> int:
    """Return the hash of the caller at a place."""
    return int(place.partition("-")[2], 16)


def in_share(caller: int, terms: CanaryTerms) -> bool:
    """Return whether a caller is shown the candidate."""
    return caller < terms.share * HASHES
