"""Every number that a message has, at any depth, with values that no honest writer gives it."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from combee_schemas.base import Message
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from support.ledger import NAME

WHOLE: dict[type[Message], dict[str, Any]] = {
    Trace: {"playbook": NAME, "task": "a task", "answer": "an answer", "success": True},
    Reflection: {"playbook": NAME, "key_insight": "Ask first."},
    Outcome: {"playbook": NAME, "success": True, "shown": {"version": 1}},
}
"""By kind, what makes a body whole but for its id."""
IDS: dict[type[Message], str] = {Trace: "trace_id", Reflection: "reflection_id", Outcome: "run_id"}
EXTREMES: tuple[object, ...] = (
    "9" * 40,
    "-" + "9" * 40,
    2**64 - 1,
    2**63 - 1,
    2**50,
    -(2**63),
    1.7e308,
    -1.7e308,
    "1e300",
)


def extreme_bodies(kind: type[Message]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield bodies, each with an extreme value in the place of one number, and which."""
    for path in number_paths(kind):
        for extreme in EXTREMES:
            name = f"{'.'.join(path)}={str(extreme)[:8]}"
            body = {IDS[kind]: name, **WHOLE[kind]}
            yield name, _placed(body, path, extreme)


def number_paths(kind: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Yield where a model has numbers."""
    for name, field in kind.model_fields.items():
        yield from ((name, *rest) for rest in _paths_in(field.annotation))


def _paths_in(annotation: Any) -> Iterator[tuple[str, ...]]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in {int, float}:
        yield ()
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from number_paths(annotation)
    elif origin is Annotated:
        yield from _paths_in(parts[0])
    elif origin in {Union, UnionType}:
        for part in parts:
            yield from () if part is NoneType else _paths_in(part)
    elif origin is dict:
        yield from (("one", *rest) for rest in _paths_in(parts[1]))
    elif origin is tuple:
        yield from (("*", *rest) for rest in _paths_in(parts[0]))


def _placed(body: Any, path: tuple[str, ...], value: object) -> Any:
    if not path:
        return value
    name, *rest = path
    if name == "*":
        return [_placed({}, tuple(rest), value)]
    return {**body, name: _placed(body.get(name, {}), tuple(rest), value)}
