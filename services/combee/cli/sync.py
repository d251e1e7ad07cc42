"""``combee sync``: keep a region of coding assistants' files equal to a playbook."""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Annotated

import typer

from combee.adapters.ports import FatalError
from combee.cli.shared.client import Gateway, gateway_address, open_client
from combee.cli.shared.console import output, print_json, remark
from combee.cli.shared.options import Name, Servers, label_names
from combee.core.formats.region import new_file, region_text, with_region
from combee.sdk import AsyncClient, PlaybookView
from combee_schemas.playbook import NO_LABEL, Playbook

ATTEMPTS = 20
"""Maximum number of times in a row that a file may change while it is being replaced."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee sync support/refunds --to AGENTS.md --to .cursor/rules/refunds.mdc")(
        sync
    )


def sync(
    name: Name,
    *,
    to: Annotated[
        list[Path], typer.Option(help="SKILL.md, AGENTS.md, CLAUDE.md, a Cursor rule (.mdc); may be repeated")
    ],
    label: Annotated[
        str, typer.Option(help="the version that this label points at", autocompletion=label_names)
    ] = NO_LABEL,
    once: Annotated[bool, typer.Option("--once", help="write the newest version once and end")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="maximum wait for the first version (s)")] = 10.0,
    gateway: Gateway = None,
    bootstrap_servers: Servers = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document a line")] = False,
) -> None:
    """Keep a region of AGENTS.md or a skill equal to a playbook.

    It also writes CLAUDE.md and Cursor rules; the rest of the file stays unchanged.
    """
    files = Files(name, list(dict.fromkeys(to)), as_json=as_json)
    address = gateway_address(gateway, bootstrap_servers)
    with suppress(KeyboardInterrupt):
        asyncio.run(_sync(files, label, timeout, address, bootstrap_servers, once=once))


async def _sync(
    files: "Files", label: str, timeout_s: float, gateway: str | None, servers: str | None, *, once: bool
) -> None:
    async with open_client(gateway, servers) as client:
        view = await client.playbook(files.name, label=label, timeout_s=timeout_s)
        if view.snapshot is not None:
            files.write_all(view.snapshot)
        elif once:
            raise FatalError(await _missing(client, files.name, label, gateway, timeout_s))
        else:
            why = await _missing(client, files.name, label, gateway, timeout_s)
            remark(f"{why}; the next version will be written")
        if not once:
            await keep(client, files, label)


async def _missing(client: AsyncClient, name: str, label: str, gateway: str | None, timeout_s: float) -> str:
    if await client.ready(0):
        labelled = f" with the label {label}" if label else ""
        return f"there is no version of {name}{labelled} ('combee playbook list' shows what there is)"
    where = gateway or "Kafka"
    return f"{where} has not sent {name} within {timeout_s:g} s (are the address and the key right?)"


async def keep(client: AsyncClient, files: "Files", label: str = NO_LABEL) -> None:
    """Write each newer version until cancelled; when several are waiting, only the last."""
    came, newest = asyncio.Event(), list[PlaybookView]()

    def take(view: PlaybookView) -> None:
        newest[:] = [view]
        came.set()

    stop = client.on_update(files.name, take, label=label)
    try:
        while True:
            await came.wait()
            came.clear()
            files.update(newest[0].snapshot)
    finally:
        stop()


class Files:
    """The files that hold a playbook."""

    def __init__(self, name: str, paths: Sequence[Path], *, as_json: bool = False) -> None:
        self.name = name
        self._paths = paths
        self._as_json = as_json
        self._written: int | None = None

    def write_all(self, playbook: Playbook) -> None:
        """Write a version into all files, or into none.

        Raises
        ------
        FatalError
            If a file cannot be changed; the message says what helps.
        """
        for path in self._paths:
            self._changed(path, playbook)(read_or_none(path))
        for path in self._paths:
            self._write(path, playbook)
        self._written = playbook.version

    def update(self, playbook: Playbook | None) -> None:
        """Write a newer version; a file that cannot be changed now is reported and left until the next version."""
        if playbook is None:
            remark(f"{self.name} is deleted: its files keep its last version")
            self._written = None
            return
        if playbook.version == self._written:
            return
        for path in self._paths:
            try:
                self._write(path, playbook)
            except FatalError as error:
                remark(f"{error}; version {playbook.version} is not in it")
        self._written = playbook.version

    def _write(self, path: Path, playbook: Playbook) -> None:
        changed = replace(path, self._changed(path, playbook))
        if self._as_json:
            about = {"name": self.name, "version": playbook.version, "file": str(path), "changed": changed}
            print_json(about)
        else:
            said = f"{'now' if changed else 'already'} has {self.name} version {playbook.version}"
            output().print(f"{path} {said}", markup=False, soft_wrap=True)

    def _changed(self, path: Path, playbook: Playbook) -> "Change":
        def change(file: bytes | None) -> bytes:
            if file is None:
                file = new_file(self.name, path.name, path.absolute().parent.name)
            try:
                return with_region(file, self.name, region_text(playbook))
            except ValueError as error:
                raise FatalError(f"{path}: {error}") from error

        return change


Change = Callable[[bytes | None], bytes]
"""Returns a file's new content from its present one, None if there is no file."""


def read_or_none(path: Path) -> bytes | None:
    """Return what a file holds, None if there is none.

    Raises
    ------
    FatalError
        If it cannot be read.
    """
    try:
        if path.exists() and not path.is_file():
            raise FatalError(f"{path} is not a file: name one, such as {path / 'AGENTS.md'}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FatalError(f"cannot read {path}: {error.strerror or error}") from error


def replace(path: Path, change: Change) -> bool:
    """Replace a file as a whole, or not at all, by what ``change`` makes of it; return whether it differs.

    Mode, owner and symbolic links stay. The file is read again immediately before it is replaced, so that another
    program's changes are kept.

    Raises
    ------
    FatalError
        If that is not possible.
    """
    for _ in range(ATTEMPTS):
        before = read_or_none(path)
        after = change(before)
        if after == before:
            return False
        try:
            if _replaced(path.resolve(), before, after):
                return True
        except OSError as error:
            raise FatalError(f"cannot write {path}: {error.strerror or error}") from error
    raise FatalError(
        f"{path} has changed {ATTEMPTS} times while being replaced: does another program write it?"
    )


def _replaced(path: Path, before: bytes | None, after: bytes) -> bool:
    """Replace a file that holds ``before``; False if it does not any more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{token_hex(4)}.combee")
    # A new file's mode follows the user's mask; an existing file keeps its mode, set below.
    mode = 0o666 if before is None else 0o600
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after)
            file.flush()
            if before is not None:
                _like(file.fileno(), path.stat())
            os.fsync(file.fileno())
        if read_or_none(path) != before:
            return False
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _like(handle: int, known: os.stat_result) -> None:
    with suppress(PermissionError):
        os.fchown(handle, known.st_uid, known.st_gid)
    os.fchmod(handle, stat.S_IMODE(known.st_mode))
