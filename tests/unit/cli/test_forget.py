"""``combee forget`` as far as it needs no broker: what has to be said, and archives that are rewritten."""

import asyncio
from pathlib import Path

import pytest

from combee.log.archive.file import ArchiveReader
from combee_schemas import topics
from combee_schemas.erasure import Erasure
from support.archives import whole_archive
from support.reading import learned_from, run, run_json

SUBJECT = "Lesson 12"
"""What nobody else in the archive says."""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give one of"),
        (("--trace", "t", "--filter", "source:a"), "give one of"),
        (("--trace", "t"), "name the new prefix"),
        (("--filter", "nothing", "--dry-run"), "selects nothing"),
        (("--filter", "since:2026-01-01", "--filter", "until:2026-01-02", "--dry-run"), "write between:"),
        (("--subject", "ab", "--dry-run"), "at least 3 characters"),
        (("--subject", "abc", "--playbook", "support/refunds", "--dry-run"), "in all playbooks"),
        (("--trace", "t", "--to", "combee"), "the prefix itself"),
    ],
)
def test_what_is_asked_for_must_be_clear(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    result = run("forget", *arguments, "--work", str(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.replace("│", " ").split())


def test_nothing_is_deleted_unasked(tmp_path: Path) -> None:
    result = run("forget", "--trace", "t", "--to", "there", "--work", str(tmp_path), stdin="n\n")
    assert result.exit_code == 1
    assert "nothing was erased" in result.stderr


def test_an_archive_is_rewritten_in_its_place_and_no_output_names_the_subject(tmp_path: Path) -> None:
    file, cache = tmp_path / "a", tmp_path / "cache"
    file.write_bytes(whole_archive())
    cache.mkdir()
    (cache / "support%2Frefunds@latest.json").write_text("{}")
    (cache / "other.txt").touch()
    options = ("--archive", str(file), "--work", str(tmp_path / "work"), "--cache-dir", str(cache))
    result = run("forget", "--subject-file", "-", *options, "--json", stdin=f"{SUBJECT}\n\n")
    assert (result.exit_code, result.stderr) == (0, "")
    assert SUBJECT.lower() not in result.output.lower()
    assert list(cache.iterdir()) == [cache / "other.txt"]
    assert not (tmp_path / "work").exists()

    with ArchiveReader(file) as archive:
        records = list(archive.records())
    assert not any(SUBJECT.lower().encode() in (record.value or b"").lower() for record in records)
    assert len([record for record in records if record.topic == topics.HISTORY.name]) == 8
    assert run_json("restore", str(file), "--check")["records"]["erasures"] == 1
    result = run("forget", "--subject", SUBJECT, *options)
    assert "nothing matches" in result.stderr


def test_the_ledger_says_that_something_was_forgotten_when_and_by_whom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = learned_from(monkeypatch).log
    told = Erasure(
        erasure_id="5f0c",
        selector="subject",
        issued_by="user:ops@host",
        erased_at_ms=1_000,
        dropped={"traces": 2},
        entries=3,
    )
    asyncio.run(log.produce(topics.ERASURES.record(told)))
    said = run("ledger", "--full")
    assert said.exit_code == 0
    line = "forgotten: 1970-01-01 00:00:01 UTC by user:ops@host, a subject (5f0c): 2 of traces; 3 entries"
    assert line in said.stdout
    assert run_json("ledger", "--full")["erasures"] == [told.model_dump()]
