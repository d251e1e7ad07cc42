"""The wire codec: msgpack of an envelope ``{"type", "version", "body"}``, size-capped before decoding.

Consecutive records share much of their content: the plan of a batch in each of its groups and partials, most entries
of a playbook in its next version. Such parts are decoded once and cached by their bytes; encoded parts are cached by
object. The cost of a snapshot is therefore proportional to what is new in it.
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
"""A version up to this far beyond the known ones is a newer writer's; a larger one is not Combee's."""
FIELDS_WRITTEN = 8
"""Cache size: encoded fields, last written first."""
LARGEST_PART = 4_096
"""Maximum size in bytes of a decoded part that is cached."""


class CodecError(ValueError):
    """A record cannot be read: too large, a foreign envelope, wrong type, unknown version or invalid body."""


def encode(message: Message) -> bytes:
    """Return the record value of ``message``.

    Raises
    ------
    CodecError
        If the result exceeds the message's ``max_bytes``, or holds a value that msgpack cannot encode: half a
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
    """Return the message in a record value; an older version is upcast if there is an upcast.

    Raises
    ------
    CodecError
        If the bytes are invalid in any way.
    OtherVersionError
        If the bytes are valid but only another release can read them.
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
"""Per message type, the field names that the last message set."""


def _share_names(message: Message) -> None:
    """Share one set of field names among messages that set the same fields; it is half of a reflection's memory."""
    names = message.__pydantic_fields_set__
    known = _named.setdefault(type(message), names)
    if known == names:
        object.__setattr__(message, "__pydantic_fields_set__", known)
    else:
        _named[type(message)] = names


def _packed(message: Message) -> bytes:
    """Return a message's envelope; a cached field is not packed again."""
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
"""Fields packed last, by their object's id. The cache keeps the objects alive, so ids stay unique."""


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
    """Return the cached decoder of a part; errors are not cached."""

    def read(raw: bytes) -> Value:
        return part.kind.model_validate(msgpack.unpackb(raw, **_limits(raw)))

    remembered = lru_cache(part.remembered)(read)
    return lambda raw: remembered(raw) if len(raw) <= LARGEST_PART else read(raw)


def _open_by_parts(raw: bytes, kind: type[Message]) -> dict[str, Any] | None:
    """Return the body of a record in our own encoding, using cached parts; None: decode it the general way.

    The general way decides about every unusual record, and reports what is wrong.
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
    """Return the value of a cached field."""
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
    """Return msgpack's limits for ``raw``: nothing inside can be longer than the whole."""
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
    """Return whether bytes begin like a message of this kind and version; the rest is not checked."""
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
