"""Payloads that must never hurt more than themselves: bytes for the codec, replies for the scan."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgpack

from combee_schemas.base import Message
from combee_schemas.codec import VERSIONS_AHEAD
from combee_schemas.model import Prompt

DEEP = 100_000


def envelope(**fields: object) -> bytes:
    """Return an envelope of whatever fields."""
    raw: bytes = msgpack.packb(fields, use_bin_type=True)
    return raw


def body(kind: type[Message], **fields: object) -> bytes:
    """Return a well-formed envelope around a body."""
    return envelope(type=kind.type, version=kind.version_number, body=fields)


def newer(kind: type[Message], ahead: int = 1) -> bytes:
    """Return what a newer writer writes: an envelope of ours around a body that we cannot know."""
    return envelope(type=kind.type, version=kind.version_number + ahead, body={"of": "tomorrow"})


def _in_body(kind: type[Message], raw: bytes) -> bytes:
    """Return an envelope whose body is raw msgpack that no packer would write."""
    return b"\x83" + b"".join(
        [
            msgpack.packb("type") + msgpack.packb(kind.type),
            msgpack.packb("version") + msgpack.packb(kind.version_number),
            msgpack.packb("body") + raw,
        ]
    )


def _broken(kind: type[Message]) -> dict[str, bytes | None]:
    """Return what is no msgpack, or none we accept."""
    return {
        "tombstone": None,
        "empty": b"",
        "random": bytes(range(256)),
        "never used byte": b"\xc1",
        "json": b'{"type": "reflection", "version": 1, "body": {}}',
        "truncated": body(kind, name="x" * 50)[:-10],
        "trailing bytes": body(kind) + b"\x00",
        "oversized": b"\x00" * (kind.max_bytes + 1),
        "oversized text": body(kind, name="x" * kind.max_bytes),
        "array bomb": b"\xdd\xff\xff\xff\xff",
        "map bomb": b"\xdf\xff\xff\xff\xff",
        "text bomb": b"\xdb\xff\xff\xff\xff",
        "bytes bomb": b"\xc6\xff\xff\xff\xff",
        "many lists": b"\xdd" + struct.pack(">I", 150_000) + b"\x90" * 150_000,
        "deep lists": b"\x91" * DEEP + b"\xc0",
        "deep maps": b"\x81\xa1a" * DEEP + b"\xc0",
        "deep body": _in_body(kind, b"\x91" * DEEP + b"\xc0"),
        "ext": b"\xd4\x05\x00",
        "ext of nothing": b"\xc7\x00\x05",
        "timestamp": b"\xd6\xff\x00\x00\x00\x00",
        "timestamp in body": _in_body(kind, b"\x81\xa1a\xd6\xff\x00\x00\x00\x00"),
        "number as key": _in_body(kind, b"\x81\x01\x02"),
        "nil as key": _in_body(kind, b"\x81\xc0\x02"),
        "list as key": _in_body(kind, b"\x81\x91\x01\x02"),
        "bad utf-8": _in_body(kind, b"\x81\xa1a\xa1\xff"),
        "surrogate": _in_body(kind, b"\x81\xa1a\xa3\xed\xa0\x80"),
    }


def _foreign(kind: type[Message]) -> dict[str, bytes | None]:
    """Return what is msgpack but no envelope of this message."""
    return {
        "nil": b"\xc0",
        "number": b"\x01",
        "list": b"\x90",
        "map": b"\x80",
        "no body": envelope(type=kind.type, version=1),
        "no version": envelope(type=kind.type, body={}),
        "no type": envelope(version=1, body={}),
        "wrong type": envelope(type="nothing-of-ours", version=1, body={}),
        "type is bytes": envelope(type=kind.type.encode(), version=1, body={}),
        "type is a number": envelope(type=1, version=1, body={}),
        "long type": envelope(type="x" * 100_000, version=1, body={}),
        "version 0": envelope(type=kind.type, version=0, body={}),
        "version -1": envelope(type=kind.type, version=-1, body={}),
        "version of no future": envelope(type=kind.type, version=2**63, body={}),
        "version of no near future": envelope(
            type=kind.type, version=kind.version_number + VERSIONS_AHEAD + 1, body={}
        ),
        "version is text": envelope(type=kind.type, version="1", body={}),
        "version is a float": envelope(type=kind.type, version=1.0, body={}),
        "version is true": envelope(type=kind.type, version=True, body={}),
        "body is a list": envelope(type=kind.type, version=kind.version_number, body=[]),
        "body is nil": envelope(type=kind.type, version=kind.version_number, body=None),
        "empty body": envelope(type=kind.type, version=kind.version_number, body={}),
    }


def payloads(kind: type[Message]) -> dict[str, bytes | None]:
    """Return record values that are no ``kind``, by what is wrong with them."""
    return _broken(kind) | _foreign(kind)


NOT_A_FIELD: Mapping[str, object] = {
    "nil": None,
    "nan": float("nan"),
    "inf": float("inf"),
    "list": [],
    "map": {},
    "nested": [[[[]]]],
    "bytes": b"\xff\xfe",
    "huge": 2**64 - 1,
    "negative": -(2**63),
    "digits": "9" * 40,
    "negative digits": "-" + "9" * 40,
    "far beyond": 1.7e308,
}
"""Values that are put in the place of every field."""


def _adding(content: object, **fields: object) -> dict[str, Any]:
    operation = {"type": "ADD", "section": "OTHERS", "content": content, "entry_ids": [], "sources": [1]}
    return {"operations": [{**operation, **fields}]}


REPLIES: Mapping[str, Mapping[str, Any]] = {
    "empty": {},
    "no list": {"operations": "ADD"},
    "no operations": {"operations": []},
    "not objects": {"operations": [1, None, "ADD", []]},
    "unknown type": _adding("c", type="DESTROY"),
    "type is a list": _adding("c", type=["ADD"]),
    "surrogate in content": _adding("\ud800 half a character"),
    "surrogate in section": _adding("c", section="\udfff"),
    "surrogate in id": _adding("c", type="UPDATE", entry_ids=["\ud800"]),
    "invented id": _adding("c", type="UPDATE", entry_ids=["no-such-id"]),
    "numbers as ids": _adding("c", type="MERGE", entry_ids=[1, 2]),
    "one id to merge": _adding("c", type="MERGE", entry_ids=["a", "a"]),
    "sources beyond": _adding("c", sources=[0, -1, 99, True, 1.5, "1", None]),
    "sources no list": _adding("c", sources={"n": 1}),
    "content is a list": _adding(["c"]),
    "content is a number": _adding(42),
    "content is blank": _adding(" \n\t "),
    "null bytes": _adding("a\x00b"),
    "100 kB in one entry": _adding("long " * 20_000),
    "4 MB in many entries": {
        "operations": [_adding(f"{n} " + "x" * 7_000)["operations"][0] for n in range(600)]
    },
    "5,000 operations": {"operations": [{"type": "ADD", "content": f"c{n}"} for n in range(5_000)]},
    "section of 100 kB": _adding("c", section="S" * 100_000),
    "prompt echoed": {"system": "You are the curator", "user": "<reflections>"},
}
"""Replies that a model might give, by what is wrong with them."""

Fate = Literal["used", "vague", "empty", "unusable"]
"""What becomes of a reply; docs/design/guarantees.md says what that means at each level.

used: operations that name items; vague: operations that name none; empty: nothing proposed, or nothing said;
unusable: as if the model had not answered.
"""

FATES: Mapping[str, Fate] = {
    "empty": "empty",
    "no list": "empty",
    "no operations": "empty",
    "not objects": "unusable",
    "unknown type": "unusable",
    "type is a list": "unusable",
    "surrogate in content": "used",
    "surrogate in section": "used",
    "surrogate in id": "used",
    "invented id": "used",
    "numbers as ids": "unusable",
    "one id to merge": "unusable",
    "sources beyond": "vague",
    "sources no list": "vague",
    "content is a list": "used",
    "content is a number": "used",
    "content is blank": "unusable",
    "null bytes": "used",
    "100 kB in one entry": "used",
    "4 MB in many entries": "used",
    "5,000 operations": "vague",
    "section of 100 kB": "used",
    "prompt echoed": "empty",
}
"""What becomes of each of `REPLIES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a server sent as the model's text."""

    text: Callable[[Prompt], str]
    finish_reason: str = "stop"
    fate: Fate = "unusable"


def _said(text: str, finish_reason: str = "stop", *, fate: Fate = "unusable") -> Said:
    return Said(text=lambda _: text, finish_reason=finish_reason, fate=fate)


_ADD = (
    '{"reasoning": "", "operations": [{"type": "ADD", "section": "OTHERS", "content": "c", "sources": [1]}], '
)

TEXTS: Mapping[str, Said] = {
    "nothing": _said(""),
    "blank": _said(" \n\t "),
    "not JSON": _said("I believe the playbook is fine as it is."),
    "a list": _said("[1, 2, 3]"),
    "a number": _said("42"),
    "wrong shape": _said('{"final_answer": "42"}'),
    "operations no list": _said('{"reasoning": "", "operations": "ADD", "dropped": []}'),
    "no account of what it dropped": _said(_ADD.rstrip(", ") + "}", fate="used"),
    "truncated": _said(_ADD + '"dropped": [2, '),
    "whole but cut off": _said(_ADD + '"dropped": []}', "length"),
    "withheld": _said(_ADD + '"dropped": []}', "content_filter"),
    "prompt echoed": Said(text=lambda prompt: f"{prompt.system}\n{prompt.user}"),
    "instructions echoed": Said(text=lambda prompt: prompt.system),
    "10 MB of prose": _said("no " * (10 << 20 >> 2)),
    "10 MB of brackets": _said("{" * (10 << 20)),
    "10 MB cut off": _said(_ADD[:-3] + "x" * (10 << 20)),
    "deep": _said('{"operations": ' + "[" * DEEP),
    "NaN": _said('{"reasoning": NaN, "operations": [], "dropped": []}', fate="empty"),
}
"""Texts that a server might send, by what is wrong with them."""

GEPA_TEXTS: Mapping[str, Said] = {
    **{name: replace(said, fate="unusable") for name, said in TEXTS.items()},  # none stands between fences
    "a text": _said("```\nNew rule.\n```", fate="used"),
    "an apology": _said("I am sorry, but I cannot rewrite this."),
    "fence not closed": _said("```\nNew rule, and the next one is"),
    "cut off inside a fence of the text": _said("```\nRun:\n```python\nx = 1\n```\nand then"),
    "whole text but cut off": _said("```\nNew rule.\n```", "length"),
    "text withheld": _said("```\nNew rule.\n```", "content_filter"),
    "nothing between fences": _said("```\n\n```"),
    "prompt echoed between fences": Said(text=lambda prompt: f"```\n{prompt.system}\n{prompt.user}\n```"),
    "400 kB of text": _said("```\n" + "long " * 80_000 + "\n```"),
    "fences without end": _said("```\n" * 100_001),
    "half a character": _said("```\nNew \ud800 rule.\n```", fate="used"),
}
"""Texts that a server might send where a whole text was asked for."""
