"""The wire codec: msgpack of an envelope ``{"type", "version", "body"}``, size-capped before decoding."""

from typing import Any, TypeVar

import msgpack
from pydantic import ValidationError

from combee_schemas.base import Message
from combee_schemas.errors import NewerVersionError
from combee_schemas.upcasts import UPCASTS

M = TypeVar("M", bound=Message)

MAX_ITEMS = 100_000
VERSIONS_AHEAD = 100
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
    body = message.model_dump(mode="python")
    envelope = {"type": message.type, "version": message.version_number, "body": body}
    try:
        raw: bytes = msgpack.packb(envelope, use_bin_type=True)
    except (ValueError, OverflowError, TypeError) as error:
        raise CodecError(f"{message.type} cannot be written: {error}") from error
    if len(raw) > message.max_bytes:
        raise CodecError(
            f"{message.type} of {len(raw)} bytes exceeds the limit of {message.max_bytes}; shorten it"
        )
    return raw


def decode(raw: bytes | None, kind: type[M]) -> M:
    """Return the message in a record value; older versions are upcast.

    Raises
    ------
    CodecError
        Always this one, whatever is wrong with the bytes.
    NewerVersionError
        If nothing is, but only a newer process can read them.
    """
    if raw is None:
        raise CodecError(f"a tombstone is not a {kind.type}")
    if len(raw) > kind.max_bytes:
        raise CodecError(f"{len(raw)} bytes exceed the limit of {kind.max_bytes} for {kind.type}")
    body = _upcast(*_open(raw, kind), kind)
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CodecError(f"invalid {kind.type}: {where}: {first['msg']}") from error


def begins_as(raw: bytes, kind: type[Message]) -> bool:
    """Return whether bytes begin as those of a message of this kind and version; what follows may be anything."""
    head: bytes = msgpack.packb({"type": kind.type, "version": kind.version_number})
    return raw[1 : len(head)] == head[1:] and len(raw) <= kind.max_bytes


def _open(raw: bytes, kind: type[Message]) -> tuple[int, dict[str, Any]]:
    try:
        envelope = msgpack.unpackb(
            raw,
            raw=False,
            strict_map_key=True,
            max_str_len=len(raw),
            max_bin_len=len(raw),
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
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
    if known < version <= known + VERSIONS_AHEAD:
        raise NewerVersionError(kind, version)
    if not 1 <= version <= known:
        raise CodecError(f"unknown version {version} of {kind.type}; this reader knows up to {known}")
    for old in range(version, kind.version_number):
        body = UPCASTS[kind.type, old](body)
    return body
