"""Playbooks in files: read from a path or standard input, written to a path or standard output."""

import sys
from pathlib import Path

import typer

from combee.adapters.ports import FatalError
from combee.cli.shared.console import print_json, remark
from combee.core.formats.files import Format, detect, ignored_in, read_playbook, write_playbook
from combee.core.formats.intake import ignored_text
from combee.core.playbook.shown import shown
from combee_schemas.playbook import Playbook

STDIN = "-"


def load(file: str, form: Format | None, *, name: str) -> tuple[Playbook, Format]:
    """Return a file's playbook and its format; ``form`` None detects the format.

    Other content of the file is ignored with a remark.

    Raises
    ------
    FatalError
        If it cannot be read; the message names the file and the line.
    """
    text = read_text(file)
    chosen = form or detect(text, "" if file == STDIN else Path(file).suffix)
    try:
        playbook, ignored = read_playbook(text, chosen, name=name), ignored_in(text, chosen)
    except ValueError as error:
        raise FatalError(f"{_file_name(file)}: {error} (read as {chosen})") from error
    if ignored:
        remark(f"{_file_name(file)}: {ignored_text(ignored)}")
    return playbook, chosen


def read_text(file: str) -> str:
    """Return a file's text, or standard input's.

    Raises
    ------
    FatalError
        If it cannot be read.
    """
    try:
        raw = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return raw.decode()
    except OSError as error:
        raise FatalError(f"cannot read {_file_name(file)}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FatalError(f"{_file_name(file)}: line {line}: not UTF-8; save the file as UTF-8") from error


def _file_name(file: str) -> str:
    return "standard input" if file == STDIN else file


def stem(file: str) -> str:
    """Return a playbook name made of a file's name without its suffix."""
    if file == STDIN:
        return "default"
    kept = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in Path(file).stem
    )
    return kept.strip(".-_") or "default"


def deliver(playbook: Playbook, form: Format, out: Path | None, *, everything: bool, as_json: bool) -> None:
    """Write a playbook to ``out`` or standard output; ``as_json``: print its counts and its place or text as JSON."""
    playbook = playbook if everything else shown(playbook)
    text = playbook_text(playbook, form, everything=everything)
    if out is not None:
        save(out, text)
    if as_json:
        where = {"out": str(out)} if out is not None else {"text": text}
        about = {"name": playbook.name, "version": playbook.version, "format": form}
        counts = {"sections": len(playbook.sections), "entries": len(playbook.entries)}
        print_json({**about, **counts, **where})
    elif out is None:
        typer.echo(text, nl=False)


def playbook_text(playbook: Playbook, form: Format, *, everything: bool = False) -> str:
    """Return a playbook as text; ``everything`` includes proposed entries.

    Raises
    ------
    FatalError
        If the format cannot express it.
    """
    try:
        return write_playbook(playbook, form, everything=everything)
    except ValueError as error:
        raise FatalError(
            f"{playbook.name} cannot be written as {form}: {error}; choose another --format"
        ) from error


def save(out: Path, text: str) -> None:
    """Write a text without converting its line ends.

    Raises
    ------
    FatalError
        If the file cannot be written.
    """
    try:
        out.write_bytes(text.encode())
    except OSError as error:
        raise FatalError(f"cannot write {out}: {error.strerror or error}") from error
