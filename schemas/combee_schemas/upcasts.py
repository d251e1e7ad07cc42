"""Upcasts: convert a body to its type's next version; bodies are plain, unvalidated dictionaries.

The one here is an example; docs/design/adr/0029-formats.md lists the formats that are read.
"""

from collections.abc import Callable, Mapping
from typing import Any

Body = dict[str, Any]
Upcast = Callable[[Body], Body]

_RESULT = ("status", "reason", "operations", "seen", "echoes", "carried", "usage")


def _update(body: Body) -> Body:
    """Return an update with its result, and its plan's settings, as separate objects."""
    result, plan = _only(body, _RESULT), body.get("plan")
    if isinstance(plan, dict):
        body = body | _only(plan, ("manifest_offset",))
        plan = plan | {"settings": _only(plan, ("method", "holds"))}
    return body | {"plan": plan, "result": result}


def _only(body: Body, names: tuple[str, ...]) -> Body:
    return {name: body[name] for name in names if name in body}


UPCASTS: Mapping[tuple[str, int], Upcast] = {("update", 1): _update}
"""(type, old version) → body of the next version."""
