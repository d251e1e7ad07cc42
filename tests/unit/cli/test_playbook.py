"""Playbooks as the command line shows them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest
from rich.markup import escape
from rich.table import Table

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Log, Record, TransientError
from combee.cli.playbook.view import diff_lines
from combee.cli.playbook.watch import new_versions
from combee.cli.shared.console import diagnostics, output, print_json
from combee.core.text.forms import printable
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.codec import encode
from combee_schemas.playbook import Audit, Change, Entry, Playbook
from support import ledger
from support.deployment import Deployment
from support.flat import changed
from support.ledger import NAME, outgoing, reflection
from support.reading import COUNT, learned_from, put, run, run_json, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")


@pytest.fixture
def learned(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:  # noqa: ARG001 - order
    return learned_from(monkeypatch)


def test_a_change_shows_the_entry_s_text_or_else_its_detail() -> None:
    entry = Entry(id="misc-00001", section="OTHERS", content="ask first")
    changes = (
        Change(kind="import", detail="version 7 of support/refunds"),
        Change(kind="import", entry_id=entry.id),
        Change(kind="remove", entry_id="misc-00002", detail="asked before"),
    )
    assert list(diff_lines(Playbook(name=NAME, version=1, entries=(entry,), changes=changes))) == [
        "  + imported version 7 of support/refunds",
        "  + imported misc-00001 ask first",
        "  - removed misc-00002 asked before",
    ]


def test_list_names_every_playbook_with_its_version(learned: Deployment) -> None:  # noqa: ARG001
    (row,) = run_json("playbook", "list")
    assert (row["name"], row["version"], row["entries"], row["batch_sequence"]) == (NAME, 2, COUNT, 2)


def test_show_as_json_is_the_playbook_message(learned: Deployment) -> None:
    shown = Playbook.model_validate(run_json("playbook", "show", NAME))
    assert shown == ledger.latest(learned.log)


def test_show_finds_an_older_version_in_history(learned: Deployment) -> None:
    shown = run_json("playbook", "show", NAME, "--version", "1")
    assert shown["entries"] == [e.model_dump(mode="json") for e in ledger.versions(learned.log)[0].entries]


def test_show_for_people_has_sections_ids_and_contents(learned: Deployment) -> None:  # noqa: ARG001
    out = run("playbook", "show", NAME).stdout
    assert f"{NAME} version 2" in out
    assert "OTHERS (20)" in out
    assert "lesson 7" in out


def test_show_tells_of_proposed_entries_and_lists_them_on_request(learned: Deployment) -> None:
    newest = ledger.latest(learned.log)
    first, *others = newest.entries
    entries = (first.model_copy(update={"state": "proposed", "support": ("r-1",)}), *others)
    put(learned, topics.PLAYBOOKS, NAME, encode(newest.model_copy(update={"version": 3, "entries": entries})))
    out = run("playbook", "show", NAME).stdout
    assert "proposed: 1 entries that agents are not shown yet; --all lists them" in out
    assert "OTHERS (19)" in out
    out = run("playbook", "show", NAME, "--all").stdout
    assert f"(proposed, 1 support it) {first.content}" in out
    assert "OTHERS (20)" in out
    for verb in ("show", "export"):
        text = (verb, NAME, "--format", "ace")
        assert f"[{first.id}]" not in run("playbook", *text).stdout
        assert f"[{first.id}]" in run("playbook", *text, "--all").stdout
    assert len(run_json("playbook", "show", NAME)["entries"]) == COUNT - 1
    assert len(run_json("playbook", "show", NAME, "--all")["entries"]) == COUNT


def test_lists_count_proposed_entries_apart(learned: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    newest = ledger.latest(learned.log)
    first, *others = newest.entries
    entries = (first.model_copy(update={"state": "proposed"}), *others)
    put(learned, topics.PLAYBOOKS, NAME, encode(newest.model_copy(update={"version": 3, "entries": entries})))
    for rows in (run_json("playbook", "list"), run_json("status")["playbooks"]):
        assert [(row["entries"], row["proposed"]) for row in rows] == [(COUNT - 1, 1)]
    for verb in (("playbook", "list"), ("status",), ("playbook", "show", NAME)):
        assert f"{COUNT - 1} (+1 proposed)" in run(*verb).stdout


def test_show_tells_what_was_retained_and_how_many_calls_were_planned(learned: Deployment) -> None:
    out = run("playbook", "show", NAME).stdout
    assert "retention: 100 %: 10 new, 0 known, 0 dropped, 0 omitted\n" in out
    assert "coverage: 10 said by the model, 10 verified, 0 carried\n" in out
    assert "model calls: 4 made, 4 planned\n" in out
    assert run_json("playbook", "show", NAME)["warnings"] == {}
    newest = ledger.latest(learned.log)
    worse = {
        "version": 3,
        "audit": Audit(new=8, known=1, dropped=2, omitted=9, said=18, verified=3, carried=7),
        "omitted_recent": (0.1, 0.1, 0.1, 0.45),
        "omitted_count": 9,
        "usage": Usage(calls=6, skips=1, splits=2, re_asks=1),
    }
    put(learned, topics.PLAYBOOKS, NAME, encode(changed(newest, **worse)))
    out = run("playbook", "show", NAME).stdout
    assert "retention: 45 %: 8 new, 1 known, 2 dropped, 9 omitted\n" in out
    assert "coverage: 18 said by the model, 3 verified, 7 carried\n" in out
    told = [
        "45 % of the last batch's reflections were omitted: the playbook has nothing of them",
        (
            "the model accounted for 90 % of the last batch's reflections, and 15 % were verified in what it wrote;"
            " Combee carried 35 %"
        ),
    ]
    assert [line for line in out.splitlines() if "warning" in line] == [f"warning: {text}" for text in told]
    assert "model calls: 6 made, 4 planned (1 skipped, 2 split, 1 asked again)" in out
    assert list(run_json("playbook", "show", NAME)["warnings"].values()) == told


@pytest.mark.parametrize(
    ("form", "line"), [("ace", "[misc-00001] helpful=0"), ("md", "- `misc-00001` (+0 -0)")]
)
def test_show_prints_the_formats(learned: Deployment, form: str, line: str) -> None:  # noqa: ARG001
    assert line in run("playbook", "show", NAME, "--format", form).stdout


def test_an_unknown_playbook_is_one_line_on_standard_error(learned: Deployment) -> None:  # noqa: ARG001
    result = run("playbook", "show", "nope", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"combee: there is no playbook nope; there are: {NAME}. The first batch of nope makes version 1:"
        " 'combee status' shows what waits for it\n"
    )


def test_an_unknown_version_is_refused(learned: Deployment) -> None:  # noqa: ARG001
    assert "has no version 9; the newest is 2" in run("playbook", "show", NAME, "--version", "9").stderr


def test_history_lists_versions_with_origin_and_cost(learned: Deployment) -> None:
    found = run_json("playbook", "show", NAME, "--history")
    first = ledger.versions(learned.log)[0]
    assert found["name"] == NAME
    assert [row["version"] for row in found["versions"]] == [1, 2]
    row = found["versions"][0]
    assert (row["origin"], row["batch_sequence"], row["reflections"]) == ("batch", 1, 10)
    assert (row["changes"], row["model_calls"]) == ({"add": 10}, first.usage.calls)
    assert (row["planned_calls"], row["skips"], row["splits"], row["re_asks"]) == (4, 0, 0, 0)
    assert row["retention"] == 1.0
    assert Audit.model_validate(row["audit"]) == Audit(new=10, said=10, verified=10)
    assert row["tokens"] == first.usage.tokens()
    assert first.usage.tokens_in > 0


def test_history_for_people_is_a_table(learned: Deployment) -> None:  # noqa: ARG001
    assert "10 add" in run("playbook", "show", NAME, "--history").stdout


def test_export_writes_a_file_that_convert_reads(learned: Deployment, tmp_path: Any) -> None:
    out = tmp_path / "p.md"
    said = run_json("playbook", "export", NAME, "--format", "md", "--out", str(out))
    assert (said["version"], said["entries"], said["format"]) == (2, COUNT, "md")
    again = json.loads(run("playbook", "convert", str(out), "--to", "json").stdout)
    assert [e["content"] for e in again["entries"]] == [e.content for e in ledger.latest(learned.log).entries]
    assert (again["name"], again["version"]) == (NAME, 2)


def test_entries_cannot_steer_a_terminal(learned: Deployment) -> None:
    evil = Entry(id="x\x1b]0;", section="[red]S[/red]", content="\x1b[2J[bold]boo[/bold]\x07")
    spoiled = ledger.latest(learned.log).model_copy(update={"version": 3, "entries": (evil,)})
    put(learned, topics.PLAYBOOKS, NAME, encode(spoiled))
    out = run("playbook", "show", NAME).stdout
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]boo[/bold]" in out


def test_a_tombstone_deletes_a_playbook(learned: Deployment) -> None:
    put(learned, topics.PLAYBOOKS, NAME, None)
    assert run_json("playbook", "list") == []


def test_what_cannot_be_read_is_passed_over(learned: Deployment) -> None:
    put(learned, topics.PLAYBOOKS, NAME, b"\xc1 not ours")
    put(learned, topics.HISTORY, NAME, b"")
    assert run_json("playbook", "show", NAME)["version"] == 2
    assert len(run_json("playbook", "show", NAME, "--history")["versions"]) == 2


def test_watch_stops_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    use_log(monkeypatch, Deployment().log)
    result = run("playbook", "watch", NAME, "--timeout", "0.05")
    assert result.exit_code == 1
    assert "no new version" in result.stderr


async def test_watch_sees_every_version_that_is_written_from_then_on() -> None:
    deployment = Deployment(batch_size=10)
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10)))
        await until_applied(deployment, 10)
        watching = new_versions(deployment.log, NAME)
        seen = asyncio.ensure_future(anext(watching))
        await deployment.log.produce(*(outgoing(reflection(n, "other")) for n in range(10)))
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10, 20)))
        found = await asyncio.wait_for(seen, 10)
        await watching.aclose()
    assert (found.name, found.version) == (NAME, 2)


async def until_applied(deployment: Deployment, count: int) -> None:
    await deployment.until(lambda: ledger.applied(deployment.log) == count)


class Flaky:
    """A log whose connection breaks after each batch of records."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.breaks = 0

    async def ends(self, topic: str) -> Mapping[int, int]:
        return await self.log.ends(topic)

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        async with aclosing(self.log.follow(topic, starts)) as changes:
            async for records in changes:
                yield records
                if records:
                    self.breaks += 1
                    raise TransientError("connection lost")


async def test_watch_misses_and_repeats_nothing_when_the_connection_breaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("combee.cli.playbook.watch.RECONNECT_S", 0.0)
    deployment = Deployment(batch_size=5)
    flaky = Flaky(deployment.log)
    watching = new_versions(cast("Log", flaky), NAME)

    async def watched() -> list[int]:
        return [(await anext(watching)).version for _ in range(6)]

    async with deployment.running():
        seen = asyncio.create_task(watched())
        for start in range(0, 30, 5):
            await deployment.log.produce(*(outgoing(reflection(n)) for n in range(start, start + 5)))
            await until_applied(deployment, start + 5)
        assert await asyncio.wait_for(seen, 10) == [1, 2, 3, 4, 5, 6]
        await watching.aclose()
    assert flaky.breaks > 1


def test_text_of_others_is_printed_without_control_characters() -> None:
    assert printable("a\x1b[1mb\nc\td\u202ee") == "a\ufffd[1mb\nc\td\ufffde"


def test_no_verb_prints_a_control_sequence_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    """An id of a producer could clear the screen on which a person decides about it."""
    name = "r-\x1b[2J\x9b1A\u202e1"
    table = Table("id", box=None)
    table.add_row(escape(name))
    output().print(f"1 reflections: {name}", markup=False, soft_wrap=True)
    output().print(table)
    diagnostics().print(name, markup=False)
    print_json({"id": name})
    printed = capsys.readouterr()
    assert not set("\x1b\x9b\u202e") & set(printed.out + printed.err)
    assert json.loads(printed.out.splitlines()[-1]) == {"id": name}
