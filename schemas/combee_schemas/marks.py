"""Marks on field types: the kind of a text, and the topic that an offset refers to.

Code that processes all messages alike, such as erasure and restore, uses marks and knows no fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from operator import is_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel


class TextKind(Enum):
    """Kind of a text field. A test fails for a text field without a mark."""

    TEXT = auto()
    """Free text by anybody, or a sentence that may quote it."""
    NAME = auto()
    """An id or a name that a user chose, or a name derived from it."""
    WORD = auto()
    """A word of the format, or a setting, that code reads."""
    HASH = auto()
    """A hash, which contains no text."""


Text = Annotated[str, TextKind.TEXT]
Name = Annotated[str, TextKind.NAME]
Word = Annotated[str, TextKind.WORD]
Hash = Annotated[str, TextKind.HASH]


@dataclass(frozen=True, slots=True)
class Place:
    """An offset in the partition of the message's playbook of a topic; a negative value means none."""

    topic: str
    way: Literal["at", "through", "first"] = "at"
    """at: the offset of one record; through: the last of a range of records; first: the first of a range."""


ReflectionOffset = Annotated[int, Place("reflections")]
ManifestOffset = Annotated[int, Place("batches")]
VersionOffset = Annotated[int, Place("history")]
ThroughReflections = Annotated[int, Place("reflections", "through")]
FromReflections = Annotated[int, Place("reflections", "first")]
ThroughCommands = Annotated[int, Place("commands", "through")]
ThroughOutcomes = Annotated[int, Place("outcomes", "through")]
PLACES = frozenset(
    get_args(kind)[1]
    for kind in (
        *(ReflectionOffset, ManifestOffset, VersionOffset, ThroughReflections, FromReflections),
        *(ThroughCommands, ThroughOutcomes),
    )
)

Mark = TextKind | Place
V = TypeVar("V", bound=BaseModel)
Rewrites = Mapping[Mark, Callable[[Any], Any]]
_Walk = Callable[[Any, Rewrites], Any]


def rewritten(value: V, rewrites: Rewrites) -> V:
    """Return a value in which each marked text and number, at any depth, is replaced by its function's result.

    Raises
    ------
    TypeError
        If a text has no mark.
    """
    walks = _walks(type(value), frozenset(rewrites))
    fields = value.__dict__
    update = {name: walk(fields[name], rewrites) for name, walk in walks.items()}
    changed = {name: new for name, new in update.items() if new is not fields[name]}
    return value.model_copy(update=changed) if changed else value


def is_marked(model: type[BaseModel], marks: frozenset[Place]) -> bool:
    """Return whether fields of a model, or of values inside it, have one of these marks."""
    return bool(_walks(model, marks))


@cache
def _walks(model: type[BaseModel], wanted: frozenset[Mark]) -> dict[str, _Walk]:
    """Return, by field, how its marked values are visited; unmarked fields are left out."""
    walks: dict[str, _Walk] = {}
    for name, field in model.model_fields.items():
        try:
            walk = _walk(field.annotation, wanted, _mark_in(field.metadata))
        except TypeError as error:
            raise TypeError(f"{model.__name__}.{name}: {error}") from error
        if walk is not None:
            walks[name] = walk
    return walks


def _mark_in(metadata: Any) -> Mark | None:
    return next((each for each in metadata if isinstance(each, Mark)), None)


def _walk(annotation: Any, wanted: frozenset[Mark], mark: Mark | None = None) -> _Walk | None:
    origin, inner = get_origin(annotation), [part for part in get_args(annotation) if part is not NoneType]
    if origin is Annotated:
        return _walk(inner[0], wanted, _mark_in(inner[1:]) or mark)
    if origin in (Union, UnionType):
        (part,) = inner
        walk = _walk(part, wanted, mark)
        return walk and (lambda value, rewrites: None if value is None else walk(value, rewrites))
    if origin in (tuple, dict):
        walks = [_walk(part, wanted, mark) for part in inner if part is not ...]
        if not any(walks):
            return None
        # A tuple of mixed kinds holds numbers only: a text needs a name.
        return (_walk_dict if origin is dict else _walk_tuple)(*(walk or _unchanged for walk in walks))
    if origin is Literal or issubclass(annotation, Enum):
        mark = TextKind.WORD if isinstance(next(iter(inner or annotation)), str) else None
    elif issubclass(annotation, BaseModel):
        return rewritten if _walks(annotation, wanted) else None
    elif mark is None and issubclass(annotation, str):
        raise TypeError("a text that is neither Text nor Name, Word or Hash")
    return (lambda value, rewrites: _kept(value, rewrites[mark](value))) if mark in wanted else None


def _walk_tuple(walk: _Walk) -> _Walk:
    def walk_all(values: tuple[Any, ...], rewrites: Rewrites) -> tuple[Any, ...]:
        new = tuple(walk(value, rewrites) for value in values)
        return values if all(map(is_, new, values)) else new

    return walk_all


def _walk_dict(of_name: _Walk, of_value: _Walk) -> _Walk:
    return lambda values, rewrites: _kept(
        values, {of_name(name, rewrites): of_value(value, rewrites) for name, value in values.items()}
    )


def _kept(old: Any, new: Any) -> Any:
    """Return the old object if nothing changed, so that nothing that holds it is copied."""
    return old if new == old else new


def _unchanged(value: Any, _rewrites: Rewrites) -> Any:
    return value
