"""Golden examples of every message: read, compared, and made (once) with ``freeze``."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from combee_schemas.base import Message
from combee_schemas.codec import decode, encode
from combee_schemas.topics import TOPICS

FOLDER = Path(__file__).parents[2] / "schemas" / "examples"
KINDS: Mapping[str, type[Message]] = {
    kind.type: kind for topic in TOPICS for kind in (topic.message, *topic.beside)
}

HOW = """\
A golden example is two files, frozen for ever once they are published:
  schemas/examples/<message type>/v<version>/<name>.json      the body, for people ({"base64": …} stands for bytes)
  schemas/examples/<message type>/v<version>/<name>.msgpack   the record's exact bytes
To make a new one, write the .json, then run in the checkout's root:
  PYTHONPATH=tests python -c "from support.examples import freeze; freeze('<message type>', '<name>')"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One golden example."""

    kind: type[Message]
    version: int
    path: Path
    """Of its JSON."""

    @property
    def message(self) -> Message:
        """The message that the JSON describes."""
        described = {"type": self.kind.type, "version": self.version, "body": body(self.path)}
        return decode(msgpack.packb(described), self.kind)

    @property
    def raw(self) -> bytes:
        """The record's bytes."""
        return self.path.with_suffix(".msgpack").read_bytes()


def body(path: Path) -> dict[str, Any]:
    """Return the body in a JSON file."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), object_hook=_bytes)
    return document


def _bytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value


def examples() -> Iterator[Example]:
    """Yield every example; one whose folder names no message type or no version is an error."""
    for path in sorted(FOLDER.glob("*/*/*.json")):
        version = int(path.parent.name.removeprefix("v"))
        yield Example(kind=KINDS[path.parent.parent.name], version=version, path=path)


def freeze(message_type: str, name: str) -> None:
    """Write the bytes of a new example of the newest version; an existing one is never touched."""
    kind = KINDS[message_type]
    path = FOLDER / message_type / f"v{kind.version_number}" / f"{name}.json"
    raw = encode(kind.model_validate(body(path)))
    with path.with_suffix(".msgpack").open("xb") as file:
        file.write(raw)
