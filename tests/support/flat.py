"""Messages from flat fields, as tests say them: a batch's header and a node's result are put where they belong."""

from typing import Any, TypeVar

from combee.core.batching.plan import plan_hash
from combee_schemas.base import Message, Value
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.upcasts import UPCASTS

M = TypeVar("M", bound=Message)


def flat(kind: type[M], **fields: Any) -> M:
    """Return a message whose fields are those that version 1 had: flat."""
    if "members" in fields:
        fields["members"] = list(fields["members"])
    return kind.model_validate(UPCASTS[kind.type, 1](fields))


def changed(message: M, **fields: Any) -> M:
    """Return a message with other values, each put where it belongs; a manifest's hash is made anew."""
    if isinstance(message, Playbook) and message.batch and "staleness" in fields:
        fields["base_sequence"] = message.batch.plan.sequence - 1 - fields.pop("staleness")
    copy = _changed(message, fields)
    assert not fields, f"{message.type} has no {', '.join(fields)}"
    if isinstance(copy, Batch) and copy.plan.sha256:
        return _changed(copy, {"sha256": plan_hash(copy)})
    return copy


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
