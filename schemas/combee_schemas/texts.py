"""Which texts users wrote: each text of a message says it by its type, and all are gone over by one function."""

from collections.abc import Callable, Container
from enum import Enum, auto
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel


class TextKind(Enum):
    """What a text may hold. A test fails for a text of a message that does not say it."""

    TEXT = auto()
    """What anybody wrote, or a sentence that may quote it."""
    NAME = auto()
    """An id or a name that a user chose, or one that was made from it."""
    WORD = auto()
    """What code reads: a word of the format, or a setting."""
    HASH = auto()
    """No text at all."""


Text = Annotated[str, TextKind.TEXT]
Name = Annotated[str, TextKind.NAME]
Word = Annotated[str, TextKind.WORD]
Hash = Annotated[str, TextKind.HASH]

V = TypeVar("V", bound=BaseModel)
Kinds = Container[TextKind]
Rewrite = Callable[[str], str]
_Walk = Callable[[Any, Kinds, Rewrite], Any]


def rewritten(value: V, kinds: Kinds, rewrite: Rewrite) -> V:
    """Return a value, and all values in it, with each text of these kinds as ``rewrite`` returns it.

    Raises
    ------
    TypeError
        If a text does not say what it may hold.
    """
    update = {name: walk(getattr(value, name), kinds, rewrite) for name, walk in _walks(type(value)).items()}
    changed = {name: new for name, new in update.items() if new != getattr(value, name)}
    return value.model_copy(update=changed) if changed else value


@cache
def _walks(model: type[BaseModel]) -> dict[str, _Walk]:
    """Return by field how its texts are gone over; fields without texts are left out."""
    walks: dict[str, _Walk] = {}
    for name, field in model.model_fields.items():
        try:
            walk = _walk(field.annotation, _kind_in(field.metadata))
        except TypeError as error:
            raise TypeError(f"{model.__name__}.{name}: {error}") from error
        if walk is not None:
            walks[name] = walk
    return walks


def _kind_in(metadata: Any) -> TextKind | None:
    return next((each for each in metadata if isinstance(each, TextKind)), None)


def _walk(annotation: Any, kind: TextKind | None = None) -> _Walk | None:
    origin, inner = get_origin(annotation), [part for part in get_args(annotation) if part is not NoneType]
    if origin is Annotated:
        return _walk(inner[0], _kind_in(inner[1:]) or kind)
    if origin in (Union, UnionType):
        (part,) = inner
        walk = _walk(part, kind)
        return walk and (lambda value, kinds, rewrite: None if value is None else walk(value, kinds, rewrite))
    if origin is tuple:
        return _walk_tuple(inner, kind)
    if origin is dict:
        walks = [_walk(part, kind) or _unchanged for part in inner]
        return None if walks == [_unchanged, _unchanged] else _walk_mapping(*walks)
    if origin is Literal or issubclass(annotation, Enum):
        kind = TextKind.WORD if isinstance(next(iter(inner or annotation)), str) else None
        return kind and _text(kind)
    if issubclass(annotation, BaseModel):
        return rewritten
    if not issubclass(annotation, str):
        return None
    if kind is None:
        raise TypeError("a text that is neither Text nor Name, Word or Hash")
    return _text(kind)


def _unchanged(value: Any, _kinds: Kinds, _rewrite: Rewrite) -> Any:
    return value


def _text(kind: TextKind) -> _Walk:
    return lambda value, kinds, rewrite: rewrite(value) if kind in kinds else value


def _walk_tuple(inner: list[Any], kind: TextKind | None) -> _Walk | None:
    if inner[-1] is not ...:
        if any(_walk(part, kind) for part in inner):
            raise TypeError("a text in a tuple of different values: make it a value with names")
        return None
    walk = _walk(inner[0], kind)
    return walk and (lambda value, kinds, rewrite: tuple(walk(each, kinds, rewrite) for each in value))


def _walk_mapping(of_name: _Walk, of_value: _Walk) -> _Walk:
    return lambda value, kinds, rewrite: {
        of_name(name, kinds, rewrite): of_value(each, kinds, rewrite) for name, each in value.items()
    }
