"""The wire codec: msgpack of an envelope ``{"type", "version", "body"}``, size-capped before decoding.

Much of what records hold stands in the record before, too: the plan of a batch in each of its groups and partials,
most entries of a playbook in its next version. Such parts are read once, and known by their bytes then; what is
written is known by the object. So a snapshot costs by what is new in it.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import chain
from typing import Any, TypeVar

import msgpack
from pydantic import TypeAdapter, ValidationError

from combee_schemas.base import Message, Part, Value
from combee_schemas.errors import OtherVersionError
from combee_schemas.upcasts import UPCASTS

M = TypeVar("M", bound=Message)

_PLAIN = TypeAdapter(Any).dump_python
MAX_ITEMS = 100_000
VERSIONS_AHEAD = 100
FIELDS_WRITTEN = 8
"""So many fields of parts that were written last are remembered."""
LARGEST_PART = 4_096
"""Bytes of a part that is remembered when it is read."""
"""So far beyond what is known a version can be a newer writer's; further, it is a stranger's."""


class CodecError(ValueError):
    """A record cannot be read: too large, not our envelope, wrong type, no version of ours or invalid body."""


def encode(message: Message) -> bytes:
    """Return the record value of ``message``.

    Raises
    ------
    CodecError
        If the result exceeds the message's ``max_bytes``, or holds what msgpack cannot: half a
        surrogate pair, a number beyond 64 bits.
    """
    try:
        raw = _packed(message)
    except (ValueError, OverflowError, TypeError) as error:
        raise CodecError(f"{message.type} cannot be written: {error}") from error
    if len(raw) > message.max_bytes:
        raise CodecError(
            f"{message.type} of {len(raw)} bytes exceeds the limit of {message.max_bytes}; shorten it"
        )
    return raw


def decode(raw: bytes | None, kind: type[M]) -> M:
    """Return the message in a record value; an older version is upcast where there is an upcast.

    Raises
    ------
    CodecError
        Always this one, whatever is wrong with the bytes.
    OtherVersionError
        If nothing is, but only another release can read them.
    """
    if raw is None:
        raise CodecError(f"a tombstone is not a {kind.type}")
    if len(raw) > kind.max_bytes:
        raise CodecError(f"{len(raw)} bytes exceed the limit of {kind.max_bytes} for {kind.type}")
    body = _open_by_parts(raw, kind) if kind.PARTS else None
    if body is None:
        body = _upcast(*_open(raw, kind), kind)
    try:
        message = kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CodecError(f"invalid {kind.type}: {where}: {first['msg']}") from error
    _share_names(message)
    return message


_named: dict[type[Message], set[str]] = {}
"""By kind, the names of the fields that the last message gave."""


def _share_names(message: Message) -> None:
    """Let messages that give the same fields hold one set of their names: it is half of what a reflection takes."""
    names = message.__pydantic_fields_set__
    known = _named.setdefault(type(message), names)
    if known == names:
        object.__setattr__(message, "__pydantic_fields_set__", known)
    else:
        _named[type(message)] = names


def _packed(message: Message) -> bytes:
    """Return a message's envelope; a field of parts that was just written as the same object is not packed again."""
    envelope = {"type": message.type, "version": message.version_number}
    parts = {name: _packed_field(getattr(message, name)) for name in type(message).PARTS}
    body = message.model_dump(mode="python", exclude=set(parts))
    if not parts:
        return _pack(envelope | {"body": body})
    names = [name for name in type(message).model_fields if name in parts or name in body]
    packer = msgpack.Packer(use_bin_type=True, autoreset=False)
    packer.pack_map_header(len(envelope) + 1)
    for each in (*chain.from_iterable(envelope.items()), "body"):
        packer.pack(each)
    packer.pack_map_header(len(names))
    packed: list[bytes] = []
    for name in names:
        packer.pack(name)
        if name in parts:
            packed += (packer.bytes(), parts[name])
            packer.reset()
        else:
            packer.pack(body[name])
    return b"".join((*packed, packer.bytes()))


def _pack(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


_written: OrderedDict[int, tuple[object, bytes]] = OrderedDict()
"""The fields that were packed last, by their object's id. What is here lives, so no other object has its id."""


def _packed_field(value: object) -> bytes:
    known = _written.get(id(value))
    if known is None or known[0] is not value:
        known = value, _pack(_PLAIN(value))
        _written[id(value)] = known
        if len(_written) > FIELDS_WRITTEN:
            _written.popitem(last=False)
    return known[1]


@cache
def _reader(part: Part) -> Callable[[bytes], Value]:
    """Return what reads a part's bytes; errors are not remembered."""

    def read(raw: bytes) -> Value:
        return part.kind.model_validate(msgpack.unpackb(raw, **_limits(raw)))

    remembered = lru_cache(part.remembered)(read)
    return lambda raw: remembered(raw) if len(raw) <= LARGEST_PART else read(raw)


def _open_by_parts(raw: bytes, kind: type[Message]) -> dict[str, Any] | None:
    """Return the body of a record as we write it, with parts that are read already; None: read it as any other.

    That decides about every record that is odd in any way, and says what is wrong with it.
    """
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(raw), **_limits(raw))
    unpacker.feed(raw)
    envelope = ["type", kind.type, "version", kind.version_number, "body"]
    try:
        head = unpacker.read_map_header(), [unpacker.unpack() for _ in envelope]
        if head != (3, envelope) or not isinstance(head[1][3], int):
            return None
        body: dict[str, Any] = {}
        for _ in range(unpacker.read_map_header()):
            name = unpacker.unpack()
            if not isinstance(name, str):
                return None
            part = kind.PARTS.get(name)
            body[name] = unpacker.unpack() if part is None else _field(unpacker, raw, part)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):
        return None
    return body if unpacker.tell() == len(raw) else None


def _field(unpacker: Any, raw: bytes, part: Part) -> Any:
    """Return what a field of parts has."""
    read = _reader(part)

    def next_one() -> Value:
        begin = unpacker.tell()
        unpacker.skip()
        return read(raw[begin : unpacker.tell()])

    if not part.many:
        return next_one()
    count = unpacker.read_array_header()
    if count > MAX_ITEMS:
        raise ValueError("too many")
    return [next_one() for _ in range(count)]


def _limits(raw: bytes) -> dict[str, Any]:
    """Return the options for reading ``raw``: nothing in it can be longer than it is."""
    return {
        "raw": False,
        "strict_map_key": True,
        "max_str_len": len(raw),
        "max_bin_len": len(raw),
        "max_array_len": MAX_ITEMS,
        "max_map_len": MAX_ITEMS,
        "max_ext_len": 0,
    }


def begins_as(raw: bytes, kind: type[Message]) -> bool:
    """Return whether bytes begin as those of a message of this kind and version; what follows may be anything."""
    head: bytes = msgpack.packb({"type": kind.type, "version": kind.version_number})
    return raw[1 : len(head)] == head[1:] and len(raw) <= kind.max_bytes


def _open(raw: bytes, kind: type[Message]) -> tuple[int, dict[str, Any]]:
    try:
        envelope = msgpack.unpackb(raw, **_limits(raw))
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise CodecError(f"not msgpack: {type(error).__name__}") from error
    match envelope:
        case {"type": kind.type, "version": int(version), "body": dict(body)} if version is not True:
            return version, body
        case {"type": str(actual)} if actual != kind.type:
            raise CodecError(f"expected a {kind.type}, found {actual[:40]!r}")
    raise CodecError("not a Combee envelope")


def _upcast(version: int, body: dict[str, Any], kind: type[Message]) -> dict[str, Any]:
    known = kind.version_number
    if not 1 <= version <= known + VERSIONS_AHEAD:
        raise CodecError(f"unknown version {version} of {kind.type}; this reader knows up to {known}")
    steps = [UPCASTS.get((kind.type, old)) for old in range(version, known)]
    if version > known or None in steps:
        raise OtherVersionError(kind, version)
    for step in filter(None, steps):
        body = step(body)
    return body
