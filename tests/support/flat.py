"""Messages from flat fields, as tests say them: a batch's header and a node's result are put where they belong."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from combee.core.batching.plan import plan_hash
from combee_schemas.base import Message, Value
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan, PlanSettings
from combee_schemas.playbook import AppliedBatch, Playbook
from combee_schemas.scan import NodeResult

M = TypeVar("M", bound=Message)


def flat(kind: type[M], **fields: Any) -> M:
    """Return a message from fields that stand side by side, but for those of a result's ``plan``."""
    body = _of(kind, fields)
    if isinstance(plan := fields.get("plan"), dict):
        body |= {"plan": _plan(plan), **_only(plan, ("manifest_offset",))}
    if "result" in kind.model_fields:
        body["result"] = _of(NodeResult, fields)
    if kind is Batch:
        members = list(fields["members"])
        body |= {"plan": _plan(fields) | {"reflections": len(members)}, "members": members}
    if kind is Playbook and fields.get("origin") == "batch":
        body["batch"] = _of(AppliedBatch, fields) | {"plan": _applied(fields)}
    message = kind.model_validate(body)
    return cast("M", _hashed(message)) if isinstance(message, Batch) else message


def _hashed(batch: Batch) -> Batch:
    return _changed(batch, {"sha256": plan_hash(batch)})


def _of(kind: type[Value], fields: Mapping[str, Any]) -> dict[str, Any]:
    return _only(fields, kind.model_fields)


def _only(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _plan(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"settings": _of(PlanSettings, fields)} | _of(Plan, fields)


def _applied(fields: Mapping[str, Any]) -> dict[str, Any]:
    sequence, staleness = fields["batch_sequence"], fields.get("staleness", 0)
    known = {"playbook": fields["name"], "sequence": sequence, "base_sequence": sequence - 1 - staleness}
    if "close_reason" in fields:
        known["reason"] = fields["close_reason"]
    return {"widths": (), "base_version": 0, "reflections": 0} | _plan(fields) | known


def changed(message: M, **fields: Any) -> M:
    """Return a message with other values, each put where it belongs; a manifest's hash is made anew."""
    if isinstance(message, Playbook) and message.batch and "staleness" in fields:
        fields["base_sequence"] = message.batch.plan.sequence - 1 - fields.pop("staleness")
    copy = _changed(message, fields)
    assert not fields, f"{message.type} has no {', '.join(fields)}"
    return cast("M", _hashed(copy)) if isinstance(copy, Batch) else copy


V = TypeVar("V", bound=Value)
INSIDE = ("plan", "settings", "result", "batch")


def _changed(value: V, fields: dict[str, Any]) -> V:
    own = {name: fields.pop(name) for name in list(fields) if name in type(value).model_fields}
    inside = {
        name: _changed(getattr(value, name), fields)
        for name in INSIDE
        if getattr(value, name, None) is not None
    }
    return value.model_copy(update={**inside, **own})
