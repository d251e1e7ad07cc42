"""Bodies of older versions as bodies of the next one: plain dictionaries, nothing of them checked yet.

What is missing stays missing and what is no dictionary stays as it is: validation has the last word.
"""

from collections.abc import Callable, Mapping
from typing import Any

Body = dict[str, Any]
Upcast = Callable[[Body], Body]

_HEADER = (
    "batch_id",
    "playbook",
    "sequence",
    "widths",
    "base_version",
    "base_sequence",
    "base_history_offset",
    "through_offset",
    "reflections",
    "batch_size",
    "waiting",
    "reason",
    "reflect_usage",
    "closed_at_ms",
)
"""Of ``Plan`` since version 1."""
_RESULT = ("status", "reason", "operations", "seen", "echoes", "carried", "usage")
_APPLIED = ("degraded", "retention", "carried", "usage")


def _only(body: Body, names: tuple[str, ...]) -> Body:
    return {name: body[name] for name in names if name in body}


def _without(body: Body, names: tuple[str, ...]) -> Body:
    return {name: value for name, value in body.items() if name not in names}


def _plan(old: Body, **known: Any) -> Body:
    """Return the header: version 1 had the method beside it, and wrote down no other setting."""
    return _only(old, _HEADER) | {"settings": _only(old, ("method", "holds")) | known}


def _same(body: Body) -> Body:
    return body


def _batch(body: Body) -> Body:
    members = body.get("members")
    counted = {"reflections": len(members)} if isinstance(members, list) else {}
    plan = _plan(body, **_only(body, ("copies",))) | counted
    return _without(body, (*_HEADER, "method", "holds")) | {"plan": plan}


def _planned(body: Body) -> Body:
    old = body.get("plan")
    return body | {"plan": _plan(old), **_only(old, ("manifest_offset",))} if isinstance(old, dict) else body


def _result(body: Body) -> Body:
    return _planned(_without(body, _RESULT)) | {"result": _only(body, _RESULT)}


def _playbook(body: Body) -> Body:
    """Return a snapshot; a batch's figures stood flat in it, as zeros where a command had made the version."""
    kept = _without(body, (*_HEADER, *_APPLIED, "close_reason", "staleness"))
    kept |= _only(body, ("through_offset",))
    if body.get("origin") != "batch":
        return kept
    sequence, staleness = body.get("batch_sequence"), body.get("staleness", 0)
    known = {"playbook": body.get("name"), "sequence": sequence}
    if isinstance(sequence, int) and isinstance(staleness, int):
        known["base_sequence"] = sequence - 1 - staleness
    if reason := body.get("close_reason"):
        known["reason"] = reason
    plan = {"widths": (), "base_version": 0, "reflections": 0} | _plan(body) | known
    return kept | {"batch": _only(body, _APPLIED) | {"plan": plan}}


UPCASTS: Mapping[tuple[str, int], Upcast] = {
    ("trace", 1): _same,
    ("reflection", 1): _same,
    ("command", 1): _same,
    ("batch", 1): _batch,
    ("group", 1): _planned,
    ("partial", 1): _result,
    ("update", 1): _result,
    ("playbook", 1): _playbook,
}
"""(type, old version) → body of the next version."""
