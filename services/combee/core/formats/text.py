"""Contents and ids inside line-based text, written so that they read back unchanged."""

import re
from collections.abc import Callable, Iterator

GUARD = "\\"
"""Prefix of a line of content that would otherwise be special."""

ENCODED = re.compile(r"%(20|5D|60|7F|[01][0-9A-F])")

IsSpecial = Callable[[str], bool]


def split_lines(text: str) -> list[str]:
    """Return the lines of a text from any system; only CR and LF end a line, never other separators."""
    return re.split(r"\r\n|\r|\n", text)


def is_blank(line: str) -> bool:
    """Return whether a line shows nothing."""
    return not line.strip()


def guarded(line: str, is_special: IsSpecial) -> str:
    """Return a line of content that cannot be mistaken for a special one."""
    return GUARD + line if is_special(line.lstrip(GUARD)) else line


def unguarded(line: str, is_special: IsSpecial) -> str:
    """Return the content that was guarded; lines that need no guard are as they are."""
    return line[1:] if line.startswith(GUARD) and is_special(line.lstrip(GUARD)) else line


def written(content: str, *, indent: str, is_special: IsSpecial) -> str:
    """Return a content as consecutive lines: inner blank lines stay blank, trailing ones are guarded."""
    first, *rest = split_lines(content)
    last = max((at for at, line in enumerate(rest) if not is_blank(line)), default=-1)
    lines = (
        line
        if is_blank(line) and at < last
        else indent + guarded(line, lambda s: is_blank(s) or is_special(s))
        for at, line in enumerate(rest)
    )
    return "\n".join([first, *lines])


def encode_id(entry_id: str, unsafe: re.Pattern[str]) -> str:
    """Return an id with each character that would end it too early as ``%XX``."""
    return unsafe.sub(lambda match: f"%{ord(match[0]):02X}", entry_id)


def decode_id(text: str) -> str:
    """Return the id that was encoded."""
    return ENCODED.sub(lambda match: chr(int(match[1], 16)), text)


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number."""
    yield from enumerate(split_lines(text.removeprefix("\ufeff")), 1)
