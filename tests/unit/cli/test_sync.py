"""``combee sync`` on a deployment in memory: files are replaced as a whole, and only between the marks."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from combee.adapters.ports import FatalError
from combee.cli import sync
from combee.cli.__main__ import app
from combee.sdk import AsyncClient, MemoryTransport
from support.waiting import until

NAME = "support/refunds"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryTransport:
    transport = MemoryTransport()

    @asynccontextmanager
    async def open_client(_gateway: str | None, _servers: str | None) -> AsyncIterator[AsyncClient]:
        async with AsyncClient(transport=lambda: transport) as client:
            yield client

    monkeypatch.setattr(sync, "open_client", open_client)
    return transport


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sync", NAME, "--once", "--timeout", "2", *arguments])


def test_once_writes_every_file_and_creates_those_that_are_missing(
    memory: MemoryTransport, tmp_path: Path
) -> None:
    memory.put_playbook(NAME, "Ask a manager above 100.")
    agents, skill = tmp_path / "AGENTS.md", tmp_path / "skills" / "refunds" / "SKILL.md"
    agents.write_text("# Mine\n")

    result = run("--to", str(agents), "--to", str(skill), "--json")

    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["file"], row["version"], row["changed"]) for row in rows] == [
        (str(agents), 1, True),
        (str(skill), 1, True),
    ]
    assert agents.read_text().startswith("# Mine\n\n<!-- combee:begin support/refunds")
    assert skill.read_text().startswith("---\nname: refunds\n")
    assert all("Ask a manager above 100." in file.read_text() for file in (agents, skill))


def test_what_says_it_already_is_not_written_again(memory: MemoryTransport, tmp_path: Path) -> None:
    memory.put_playbook(NAME, "Ask a manager above 100.")
    file = tmp_path / "AGENTS.md"
    assert "now has" in run("--to", str(file)).stdout
    written = file.stat()
    assert "already has" in run("--to", str(file)).stdout
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


def test_a_label_chooses_the_version(memory: MemoryTransport, tmp_path: Path) -> None:
    memory.put_playbook(NAME, "the old lesson")
    memory.put_playbook(NAME, "the new lesson")
    memory.put_label(NAME, "production", 1)
    file = tmp_path / "AGENTS.md"
    assert run("--to", str(file), "--label", "production").exit_code == 0
    assert "the old lesson" in file.read_text()


def test_damaged_marks_end_it_before_any_file_is_written(memory: MemoryTransport, tmp_path: Path) -> None:
    memory.put_playbook(NAME, "Ask a manager above 100.")
    damaged, whole = tmp_path / "AGENTS.md", tmp_path / "CLAUDE.md"
    damaged.write_text(f"<!-- combee:begin {NAME} -->\nmine\n")

    result = run("--to", str(whole), "--to", str(damaged))

    assert result.exit_code == 1
    assert "AGENTS.md: the marks of support/refunds are damaged (begin in line 1)" in result.stderr
    assert not whole.exists()
    assert damaged.read_text() == f"<!-- combee:begin {NAME} -->\nmine\n"


@pytest.mark.usefixtures("memory")
def test_a_playbook_that_is_not_there_fails_with_what_helps(tmp_path: Path) -> None:
    result = run("--to", str(tmp_path / "AGENTS.md"))
    assert result.exit_code == 1
    assert "there is no version of support/refunds ('combee playbook list'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_deployment_that_does_not_answer_is_named(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    result = run("--to", str(tmp_path / "AGENTS.md"), "--gateway", nobody, "--timeout", "0.2")
    assert result.exit_code == 1
    assert f"{nobody} has not sent support/refunds within 0.2 s" in " ".join(result.stderr.split())


@pytest.mark.usefixtures("memory")
def test_a_folder_and_a_wrong_address_are_refused(tmp_path: Path) -> None:
    assert run("--to", "x.md", "--gateway", "127.0.0.1:8750").exit_code == 2
    with pytest.raises(FatalError, match="is not a file: name one"):
        sync.replace(tmp_path, lambda _: b"new")


def test_mode_and_symbolic_links_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "shared.md", tmp_path / "AGENTS.md"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target.name)
    assert sync.replace(link, lambda _: b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["AGENTS.md", "shared.md"]


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        sync.replace(tmp_path / "new.md", lambda _: b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "new.md").stat().st_mode & 0o777 == 0o640


def test_what_somebody_writes_meanwhile_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_bytes(b"before ")
    edits = iter((b"edited ", b"edited again "))

    def change(current: bytes | None) -> bytes:
        if (edit := next(edits, None)) is not None:  # an editor saves while the new file is being prepared
            file.write_bytes(edit)
        return (current or b"") + b"region"

    assert sync.replace(file, change)
    assert file.read_bytes() == b"edited again region"


def test_a_file_that_never_stays_is_given_up(tmp_path: Path) -> None:
    file, count = tmp_path / "AGENTS.md", 0

    def change(_: bytes | None) -> bytes:
        nonlocal count
        count += 1
        file.write_bytes(b"%d" % count)
        return b"mine"

    with pytest.raises(FatalError, match="does another program write it"):
        sync.replace(file, change)
    assert list(tmp_path.iterdir()) == [file]


def test_a_failed_write_leaves_the_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_bytes(b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FatalError, match="No space left"):
        sync.replace(file, lambda _: b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


async def test_each_newer_version_is_written_while_it_watches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, file = MemoryTransport(), tmp_path / "AGENTS.md"
    async with AsyncClient(transport=lambda: memory) as client:
        watching = asyncio.create_task(sync.keep(client, sync.Files(NAME, [file])))
        memory.put_playbook(NAME, "the first lesson")
        await until(lambda: file.exists() and "the first lesson" in file.read_text())
        file.write_text(f"# Mine\n{file.read_text()}")
        memory.put_playbook(NAME, "the second lesson")
        await until(lambda: "the second lesson" in file.read_text())
        assert file.read_text().startswith("# Mine\n<!-- combee:begin")
        assert "the first lesson" not in file.read_text()

        file.write_text("begin lost\n" + file.read_text().partition("\n")[2].partition("\n")[2])
        memory.put_playbook(NAME, "the third lesson")
        err = ""

        def told() -> bool:
            nonlocal err
            err += capsys.readouterr().err
            return "version 3 is not in it" in err

        await until(told)
        assert "are damaged (end in line" in err

        memory.delete_playbook(NAME)
        err = ""
        await until(lambda: told() or "is deleted: its files keep its last version" in err)
        assert "the second lesson" in file.read_text()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
