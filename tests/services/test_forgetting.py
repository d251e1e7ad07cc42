"""What is forgotten is nowhere any more, nothing brings it back, and the ledger balances and says so."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError
from combee.core.log.archive.cut import IN_FILE
from combee.core.log.erasure.lessons import ErasureError
from combee.core.log.erasure.selector import Selector, Subjects
from combee.core.log.ledger import LedgerReport
from combee.core.log.replaying.selection import Selection
from combee.core.names.identity import reflection_id
from combee.core.text.forms import comparable
from combee.log.archive import forgetting, restoring
from combee.log.archive.erasing import found_runs, without
from combee.log.archive.file import ArchiveReader
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.outcome import Outcome, OutcomeStatistics
from combee_schemas.playbook import Label
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Known, Update
from combee_schemas.topics import AnyTopic
from combee_schemas.trace import Trace
from support import branches, gates, ledger
from support.archives import MemoryTopics, archived, contents, ledger_of, restored
from support.clock import ManualClock
from support.deployment import Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.forgetting import HONEST, SUBJECT, everything, forgotten, lived, names_subject, place, wish
from support.ledger import NAME, lessons, outgoing, reflection
from support.models import ScriptedModel, echo, items
from support.playbooks import REMOVE, op
from support.recorded_log import HALF_DONE, recorded
from support.rows import each_row

pytestmark = pytest.mark.usefixtures("quick_polls")
EVERYWHERE = {
    *("traces", "reflections", "batches", "scan.0", "scan.1", "updates", "history", "playbooks"),
    *("commands", "dead-letters", "outcomes"),
}
"""Where the subject is named before."""


def new_log() -> MemoryLog:
    return MemoryLog(ManualClock(), partitions=2, scan_partitions=3)


def where_named(log: MemoryLog) -> set[str]:
    return {
        record.topic
        for topic in topics.TOPICS
        for record in ledger.records(log, topic)
        if names_subject((record.key or b"") + (record.value or b""))
    }


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def said(log: MemoryLog) -> Iterator[set[str]]:
    for version in ledger.versions(log):
        yield {entry.content for entry in version.entries}


async def test_a_subject_is_forgotten_everywhere_and_what_others_taught_stays(tmp_path: Path) -> None:
    old, new = (await lived()).log, new_log()
    assert where_named(old) >= EVERYWHERE
    before, wordings = await audit(old), list(said(old))

    (erasure,) = await forgotten(old, new, tmp_path, wish())
    assert not any(map(names_subject, everything(new)))
    assert old._store._topics == {}
    assert left_in(tmp_path) == []

    taught_by_the_subject = {"learned: lesson of named-in-task", "lesson 90"}
    for wording, left in zip(wordings, said(new), strict=True):
        assert left == {text for text in wording - taught_by_the_subject if SUBJECT not in text.casefold()}
    assert lessons(range(HONEST)) <= list(said(new))[3]
    assert (erasure.entries, erasure.dropped["reflections"], erasure.dropped["traces"]) == (5, 4, 2)

    after = await audit(new)
    assert (after.violations, after.lost, after.double) == ((), 0, 0)
    assert after.reflections == before.reflections - 3
    assert after.applied == before.applied - 3 == HONEST
    assert after.erasures == (erasure,)
    assert SUBJECT not in str(after.model_dump(mode="json")).casefold()
    assert (erasure.issued_by, erasure.selector, erasure.erased_at_ms) == ("user:ops@host", "subject", 7)


async def test_a_rollback_does_not_bring_it_back_and_learning_goes_on(tmp_path: Path) -> None:
    lived_through = await lived()
    new = new_log()
    await forgotten(lived_through.log, new, tmp_path, wish())

    deployment = Deployment(batch_size=10, copies=2, fan_in=2)
    deployment.log = new
    async with deployment.running():
        for number in range(1, 5):
            command = Command(command_id=f"back-{number}", playbook=NAME, kind="rollback", version=number)
            await new.produce(outgoing(command))
            await deployment.until(lambda number=number: len(ledger.versions(new)) == 5 + number)  # type: ignore[misc]
        await new.produce(*(outgoing(reflection(n)) for n in range(100, 110)))
        await deployment.until(lambda: len(ledger.versions(new)) == 10)
        revoke = Command(command_id="r", playbook=NAME, kind="revoke", reflection_ids=("r-1", "r-2"))
        await new.produce(outgoing(revoke))
        await deployment.until(lambda: len(ledger.versions(new)) == 11)
    assert not any(map(names_subject, everything(new)))
    assert lessons(range(100, 110)) <= {entry.content for entry in ledger.latest(new).entries}
    report = await audit(new)
    assert (report.violations, report.lost, report.applied) == ((), 0, HONEST + 10)


@each_row("kind", ["rollback", "revoke"])
async def test_what_an_erased_run_taught_beside_a_revoked_one_does_not_come_back(
    tmp_path: Path, kind: str
) -> None:
    """Earlier versions rested on the revoked one, too, and kept the lesson: all that is made of them had it again."""
    first, lesson = gates.deployment_with(), "a lesson"
    repeats = gates.update(2, gates.add("another", "r-2"), gates.add("more", "r-3", "r-7"))
    known = (Known(entry_id="misc-00001", evidence=("r-7",)),)
    seen = tuple(one.model_copy(update={"covered": "words"}) for one in repeats.result.seen)
    result = repeats.result.model_copy(update={"known": known, "seen": seen})
    repeats = repeats.model_copy(update={"result": result})
    taught = (gates.update(1, gates.add(lesson, "r-1")), repeats)
    await gates.send(first, *taught, gates.command("revoke", reflection_ids=("r-1",), rules=("id:r-1",)))
    deployment, run = Deployment(), Selection("id", "r-7")
    deployment.log = new_log()
    await forgotten(first.log, deployment.log, tmp_path, wish(Selector(rules=(run,), kind="trace")))
    assert gates.contents(ledger.latest(deployment.log)) == ["another", "more"]
    named = {"version": 3} if kind == "rollback" else {"reflection_ids": ("r-2",), "rules": ("id:r-2",)}
    async with deployment.running(["publish"]):
        await deployment.log.produce(
            outgoing(gates.command("edit", "c-2", operations=[op(REMOVE, "", "misc-00003")])),
            outgoing(gates.command(kind, "c-3", **named)),
        )
        await deployment.until(lambda: ledger.latest(deployment.log).version == 5)
    assert lesson not in gates.contents(ledger.latest(deployment.log))


async def test_ids_that_name_the_subject_and_what_is_derived_from_them_are_called_otherwise(
    tmp_path: Path,
) -> None:
    deployment = Deployment(batch_size=10, copies=2, fan_in=2)
    run = Trace(trace_id=f"{SUBJECT}#1", playbook=NAME, task="t", answer="a plain lesson")
    derived = reflection_id(NAME, run.trace_id)
    async with deployment.running() as running:
        await running.log.produce(topics.TRACES.record(run), *(outgoing(reflection(n)) for n in range(9)))
        await running.until(lambda: ledger.applied(running.log) == 10)
        await running.until(lambda: not ledger.behind(running.log))
    new = new_log()
    await forgotten(deployment.log, new, tmp_path, wish())

    assert not any(derived.encode() in raw for raw in everything(new)), "who guesses the name could check it"
    (batch,) = ledger.batches(new)
    (update,) = ledger.messages(new, topics.UPDATES, Update)
    assert {member.reflection_id for member in batch.members} == {
        seen.reflection_id for seen in update.result.seen
    }
    assert (await audit(new)).violations == (), "seed and hash follow from what the members are called now"


async def test_no_spelling_of_the_subject_is_left(tmp_path: Path) -> None:
    spelt = ("Jane Roe", "JANE  ROE", "Jane\nRoe", "Ja\u00adne R\u200boe", "ｊａｎｅ\u3000ｒｏｅ")
    deployment = Deployment(batch_size=10, copies=2, fan_in=2)
    async with deployment.running() as running:
        said = (reflection(50 + n, key_insight=f"Write to {name} first.") for n, name in enumerate(spelt))
        await running.log.produce(*map(outgoing, said), *(outgoing(reflection(n)) for n in range(5)))
        await running.until(lambda: ledger.applied(running.log) == 10)
        label = Command(command_id="c", playbook=NAME, kind="promote", label="jane_roe", version=1)
        await running.log.produce(outgoing(label))
        await running.until(lambda: bool(ledger.messages(running.log, topics.LABELS, Label)))
        await running.until(lambda: not ledger.behind(running.log))
    subjects, new = Subjects(("Jane Roe",)), new_log()
    assert {topic.name for topic in topics.TOPICS if _names(deployment.log, topic)} >= {
        *("reflections", "scan.0", "updates", "history", "playbooks", "commands", "labels")
    }
    await forgotten(deployment.log, new, tmp_path, wish(Selector(subjects=subjects)))
    assert not any("roe" in comparable(raw.decode(errors="replace")) for raw in everything(new))
    assert lessons(range(5)) == {entry.content for entry in ledger.latest(new).entries}
    assert (await audit(new)).violations == ()


def _names(log: MemoryLog, topic: AnyTopic) -> bool:
    texts = (record.value or b"" for record in ledger.records(log, topic))
    return any("roe" in comparable(text.decode(errors="replace")) for text in texts)


async def test_one_run_goes_with_what_it_alone_has_taught(tmp_path: Path) -> None:
    old, new = (await lived()).log, new_log()
    selector = Selector(rules=(Selection("id", "named-in-task"),), kind="trace")
    (erasure,) = await forgotten(old, new, tmp_path, wish(selector))

    assert not any(b"lesson of named-in-task" in raw for raw in everything(new))
    assert where_named(new) >= {"history", "reflections", "updates"}, "other runs stay"
    assert (erasure.dropped["traces"], erasure.dropped["reflections"], erasure.entries) == (1, 1, 1)
    assert {trace.trace_id for trace in ledger.messages(new, topics.TRACES, Trace)} == {"named-in-answer"}
    assert (await audit(new)).violations == ()


async def test_one_run_is_forgotten_after_another(tmp_path: Path) -> None:
    """The places of records that are gone stay apart: the one before takes none that is given by now."""
    log = (await lived()).log
    for number in (5, 4, 7, 1):
        new = new_log()
        selector = Selector(rules=(Selection("id", f"r-{number}"),), kind="trace")
        await forgotten(log, new, tmp_path, replace(wish(selector), erasure_id=f"e-{number}"))
        assert (await audit(new)).violations == ()
        log = new
    for batch in ledger.batches(log):
        assert len({member.offset for member in batch.members}) == len(batch.members)


async def test_what_two_runs_taught_goes_with_the_last_of_them(tmp_path: Path) -> None:
    """They are forgotten by a command each, and another run in between."""
    deployment = Deployment(batch_size=4)
    async with deployment.running() as running:
        said = {1: ZEBULON, 2: ZEBULON, 3: "lesson 3", 4: "lesson 4"}
        await running.log.produce(*(outgoing(reflection(n, key_insight=text)) for n, text in said.items()))
        await running.until(lambda: ledger.applied(running.log) == 4)
        await running.until(lambda: not ledger.behind(running.log))
    log = deployment.log
    for number in (2, 3, 1):
        assert ZEBULON in {entry.content for entry in ledger.latest(log).entries}
        new, selector = new_log(), Selector(rules=(Selection("id", f"r-{number}"),), kind="trace")
        await forgotten(log, new, tmp_path, replace(wish(selector), erasure_id=f"e-{number}"))
        assert (await audit(new)).violations == ()
        log = new
    assert not any(b"Zebulon" in raw for raw in everything(log))
    assert lessons([4]) == {entry.content for entry in ledger.latest(log).entries}


REFUND = "Refund within 30 days when the receipt is there"
NOT_TAKEN = {
    "rewords what more say": f"{REFUND} and Zebulon agrees.",
    "would lose a figure": f"{REFUND.replace('30', '90')} and Zebulon agrees.",
    "would lose a figure, and is cut off": f"{REFUND.replace('30', '90')} and Zebulon agrees{' in time' * 20}.",
    "is left out as vague": "Zebulon vague.",
    "is told in words that nobody says": "Ask the customer Zebulon at once.",
}
"""What a run says, and why it changes no entry."""


def obeying(prompt: Prompt) -> Mapping[str, Any]:
    """Make of what names Zebulon an update of the first entry or a text of its own, or leave it out as vague."""
    operations, dropped = [], []
    for item, kept in zip(items(prompt), echo(prompt)["operations"], strict=True):
        if "vague" in kept["content"]:
            dropped.append(item["n"])
        elif "at once" in kept["content"]:
            operations.append({**kept, "content": "Two letters went to Mr Zebulon's house in June."})
        elif "Zebulon" in kept["content"]:
            operations.append({**kept, "type": "UPDATE", "entry_ids": ["misc-00001"]})
        else:
            operations.append(kept)
    return {"reasoning": "", "operations": operations, "dropped": dropped}


@pytest.mark.parametrize("words", NOT_TAKEN.values(), ids=NOT_TAKEN)
async def test_what_a_run_said_without_changing_an_entry_goes_with_it(tmp_path: Path, words: str) -> None:
    deployment, new = Deployment(batch_size=4, model=ScriptedModel(obeying)), new_log()
    erased, others = (f"r-{part * 8}-{part * 4}-{part * 4}-{part * 4}-{part * 12}" for part in "ab")
    async with deployment.running() as running:
        first = (reflection(n, reflection_id=f"{others}{n}", key_insight=f"{REFUND}.") for n in range(4))
        await running.log.produce(*map(outgoing, first))
        await running.until(lambda: ledger.applied(running.log) == 4)
        run = reflection(9, reflection_id=erased, key_insight=words)
        await running.log.produce(outgoing(run), *(outgoing(reflection(n)) for n in range(3)))
        await running.until(lambda: ledger.applied(running.log) == 8)
        await running.until(lambda: not ledger.behind(running.log))
    await forgotten(
        deployment.log, new, tmp_path, wish(Selector(rules=(Selection("id", erased),), kind="trace"))
    )
    assert not any(b"Zebulon" in raw for raw in everything(new))
    assert lessons(range(3)) | {f"{REFUND}."} == {entry.content for entry in ledger.latest(new).entries}
    assert (await audit(new)).violations == ()


def repeating(prompt: Prompt) -> Mapping[str, Any]:
    """Say of later batches, and of the first entry, what the first one says."""
    given = echo(prompt)
    if "Zebulon" not in str(prompt) or any("Zebulon" in str(item) for item in items(prompt)):
        return given
    first, *_ = given["operations"]
    more = ({**first, "content": ZEBULON}, {**first, "type": "UPDATE", "entry_ids": ["misc-00001"]})
    return {**given, "operations": [*given["operations"], *more]}


ZEBULON = "Ask Mr Zebulon for the receipt before anything is paid"


async def test_what_later_calls_say_of_a_run_s_lesson_goes_with_it(tmp_path: Path) -> None:
    deployment, new = Deployment(batch_size=4, model=ScriptedModel(repeating)), new_log()
    async with deployment.running() as running:
        run = reflection(9, key_insight=ZEBULON)
        await running.log.produce(outgoing(run), *(outgoing(reflection(n)) for n in range(3)))
        await running.until(lambda: ledger.applied(running.log) == 4)
        await running.log.produce(*(outgoing(reflection(n)) for n in range(3, 7)))
        await running.until(lambda: ledger.applied(running.log) == 8)
        await running.until(lambda: not ledger.behind(running.log))
    await forgotten(
        deployment.log, new, tmp_path, wish(Selector(rules=(Selection("id", "r-9"),), kind="trace"))
    )
    assert not any(b"Zebulon" in raw for raw in everything(new))
    assert lessons(range(7)) == {entry.content for entry in ledger.latest(new).entries}
    assert (await audit(new)).violations == ()


async def test_a_run_whose_reflection_has_expired_is_known_by_its_manifest(tmp_path: Path) -> None:
    await archived((await lived()).log, tmp_path / "a")
    old, new = await _expired(tmp_path / "a"), new_log()
    selector = Selector(rules=(Selection("id", "named-in-task"),), kind="trace")
    (erasure,) = await forgotten(old, new, tmp_path, wish(selector))
    assert erasure.entries == 1
    assert not any(b"lesson of named-in-task" in raw for raw in everything(new))
    assert (await audit(new)).violations == ()


async def test_it_is_forgotten_on_all_lines_and_both_learn_on(tmp_path: Path) -> None:
    deployment, new = await branches.learned(), new_log()
    async with deployment.running():
        await deployment.log.produce(outgoing(branches.FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, branches.LINE)) == 1)
        await branches.publish(deployment, range(10, 16))
        await deployment.until(lambda: branches.both(deployment, 6))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    selector = Selector(rules=(Selection("id", "r-1"), Selection("id", "r-11")), kind="filter")
    (erasure,) = await forgotten(deployment.log, new, tmp_path, wish(selector))
    assert (erasure.entries, erasure.dropped["reflections"]) == (4, 2)

    deployment.log = new
    async with deployment.running():
        await branches.publish(deployment, range(20, 26))
        await deployment.until(lambda: branches.both(deployment, 12))
    for line in (NAME, branches.LINE):
        expected = lessons([0, 2, 10, *range(12, 16), *range(20, 26)])
        assert {entry.content for entry in ledger.latest(new, line).entries} == expected
    assert (await audit(new)).violations == ()


async def test_statistics_of_outcomes_stay_and_the_outcome_goes(tmp_path: Path) -> None:
    old, new = (await lived()).log, new_log()
    (before,) = ledger.messages(old, topics.OUTCOME_STATISTICS, OutcomeStatistics)[-1:]
    await forgotten(old, new, tmp_path, wish())
    (after,) = ledger.messages(new, topics.OUTCOME_STATISTICS, OutcomeStatistics)
    assert after.unplaced == before.unplaced == 2
    assert [outcome.run_id for outcome in ledger.messages(new, topics.OUTCOMES, Outcome)] == ["o-2"]


async def test_an_archive_is_rewritten_and_says_so(tmp_path: Path) -> None:
    log = (await lived()).log
    file, asked = tmp_path / "a.archive", wish()
    await archived(log, file)
    forgetting.erased_files([file], asked, tmp_path, replace=[file])
    with ArchiveReader(file) as archive:
        records = list(archive.records())
    assert not any(names_subject((record.key or b"") + (record.value or b"")) for record in records)
    assert [record.topic for record in records].count("erasures") == 1
    again = file.read_bytes()
    forgetting.erased_files([file], asked, tmp_path, replace=[file])
    assert file.read_bytes() == again, "nothing is left to be found"


def test_the_record_of_an_erasure_stands_last_in_an_archive() -> None:
    assert IN_FILE[-1] is topics.ERASURES, "it counts what was done to all others"


async def test_of_several_archives_all_are_rewritten_or_none(tmp_path: Path) -> None:
    good, under_way = tmp_path / "good", tmp_path / "under-way"
    await archived((await lived()).log, good)
    await archived(recorded(ManualClock()), under_way)
    before = good.read_bytes()
    asked = wish(Selector(rules=(Selection("id", "r-1"),), kind="trace"))
    with pytest.raises(ErasureError, match="cannot be rewritten"):
        forgetting.erased_files([good, under_way], asked, tmp_path, replace=[good, under_way])
    assert good.read_bytes() == before
    assert set(left_in(tmp_path)) == {"good", "under-way"}


async def test_a_survey_counts_and_changes_nothing(tmp_path: Path) -> None:
    log = (await lived()).log
    before = contents(log)
    (counted,) = await forgetting.survey(place("old", log), tmp_path, wish(), (), ManualClock())
    assert (counted.dropped["traces"], counted.entries) == (2, 5)
    assert contents(log) == before
    assert left_in(tmp_path) == []


async def test_where_nothing_is_found_nothing_is_moved(tmp_path: Path) -> None:
    log, new = (await lived()).log, new_log()
    asked = wish(Selector(subjects=Subjects(("nobody@example.com",))))
    there, here = place("old", log), place("new", new)
    await forgetting.move(there, here, tmp_path, asked, (), configs={}, replication=1, clock=ManualClock())
    assert not any(everything(new))
    assert not await forgetting.is_moved(there, here)
    assert left_in(tmp_path) == []


# ---- killed, and run again


async def test_killed_anywhere_and_run_again_it_ends_the_same(tmp_path: Path) -> None:
    source = (await lived()).log
    file = tmp_path / "source.archive"
    await archived(source, file)
    whole, passed = new_log(), CrashFailpoint()
    await forgotten(await _copy(file), whole, tmp_path, wish(), passed)
    expected, balance = contents(whole), await ledger_of(whole)
    moved = passed.points.index("before deleting reflections")
    assert "after creating restoring" in passed.points

    for at in _some(passed.points):
        old, new = await _copy(file), new_log()
        with pytest.raises(CrashError):
            await forgotten(old, new, tmp_path, wish(), CrashFailpoint(at))
        if {topic.name for topic in topics.TOPICS} - old._store._topics.keys():
            assert at >= moved, "nothing is deleted before its copy is whole"
            assert "restoring" in old._store._topics or not old._store._topics, "none starts on what is left"
        if contents_or_nothing(new) not in (expected, NOTHING):
            assert "restoring" in new._store._topics, "no service starts on half a copy"
        if old._store._topics:
            await forgotten(old, new, tmp_path, wish())
        assert contents(new) == expected, passed.points[at - 1]
        assert await ledger_of(new) == balance
        assert (old._store._topics, "restoring" in new._store._topics) == ({}, False)
        assert left_in(tmp_path) == [file.name]


NOTHING: dict[str, list[str]] = {topic.name: [] for topic in topics.TOPICS}


def contents_or_nothing(log: MemoryLog) -> dict[str, list[str]]:
    return contents(log) if topics.TRACES.name in log._store._topics else NOTHING


def _some(points: list[str]) -> list[int]:
    """Return the first and the last time that each kind of point is passed."""
    kinds = [point.replace(point.split()[-1], "") if "deleting" in point else point for point in points]
    first = {kind: at for at, kind in reversed(list(enumerate(kinds, 1)))}
    last = {kind: at for at, kind in enumerate(kinds, 1)}
    return sorted({*first.values(), *last.values()})


async def _copy(file: Path) -> MemoryLog:
    log = new_log()
    await restored(file, log)
    return log


# ---- refused


async def test_where_services_run_nothing_is_done(tmp_path: Path) -> None:
    old, new = (await lived()).log, new_log()
    admin = MemoryTopics(old)
    admin.running = 1
    there = forgetting.Place(prefix="old", log=old, admin=admin)
    with pytest.raises(FatalError, match="stop them"):
        await forgetting.move(
            there, place("new", new), tmp_path, wish(), (), configs={}, replication=1, clock=ManualClock()
        )


async def test_services_that_have_stopped_are_waited_for_until_they_are_no_members_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "LOOK_AGAIN_S", 0.01)
    old, new = (await lived()).log, new_log()
    admin = MembersLeave(old, asked=40)
    there, told = forgetting.Place(prefix="old", log=old, admin=admin), list[str]()
    await forgetting.begin_anew(there, place("new", new), tmp_path)
    (erasure,) = await forgetting.move(
        *(there, place("new", new), tmp_path, wish(), ()),
        configs={},
        replication=1,
        clock=ManualClock(),
        session_s=10,
        tell=told.append,
    )
    assert erasure.dropped["traces"] == 2
    assert admin.asked == 0
    (line,) = told
    assert line.startswith("waiting up to 15 s until Kafka forgets the services that ran under old")


class MembersLeave(MemoryTopics):
    """Groups whose members are gone after they were asked for this often."""

    def __init__(self, log: MemoryLog, asked: int) -> None:
        super().__init__(log)
        self.asked = asked

    async def members(self, group: str) -> int:
        self.asked = max(0, self.asked - 1)
        return 1 if self.asked else await super().members(group)


async def test_what_is_in_a_batch_under_way_is_not_forgotten_before_that_has_its_version(
    tmp_path: Path,
) -> None:
    old = recorded(ManualClock())
    asked = wish(Selector(rules=(Selection("id", "r-1"),), playbook=HALF_DONE, kind="trace"))
    with pytest.raises(FatalError, match="batches without a version"):
        await forgotten(old, new_log(), tmp_path, asked)
    assert left_in(tmp_path) == []
    other = wish(Selector(rules=(Selection("id", "r-1"),), playbook=NAME, kind="trace"))
    new = new_log()
    await forgotten(old, new, tmp_path, other)
    assert (await audit(new)).violations == ()


async def test_what_is_written_meanwhile_is_not_deleted_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (await lived()).log, new_log()
    with monkeypatch.context() as patched:
        _write_meanwhile(patched, old, new)
        with pytest.raises(FatalError, match="meanwhile: stop agents"):
            await forgotten(old, new, tmp_path, wish())
    assert "restoring" in new._store._topics
    assert "restoring" not in old._store._topics
    await forgotten(old, new, tmp_path, wish())
    kept = {each.reflection_id for each in ledger.messages(new, topics.REFLECTIONS, Reflection)}
    assert "r-1000" in kept


async def test_without_that_look_it_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (await lived()).log, new_log()
    _write_meanwhile(monkeypatch, old, new)
    monkeypatch.setattr(forgetting, "_refuse_news", _nothing)
    await forgotten(old, new, tmp_path, wish())
    kept = {each.reflection_id for each in ledger.messages(new, topics.REFLECTIONS, Reflection)}
    assert "r-1000" not in kept


def _write_meanwhile(patched: pytest.MonkeyPatch, old: MemoryLog, new: MemoryLog) -> None:
    async def late(log: MemoryLog, *_: object) -> LedgerReport:
        if log is new:
            await old.produce(outgoing(reflection(1000)))
        return await audit(log)

    patched.setattr(forgetting, "audit", late)


async def _nothing(*_: object) -> None:
    return


async def test_without_the_mark_a_second_run_would_read_what_is_half_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> bool:
        return False

    old, new = (await lived()).log, new_log()
    with pytest.raises(CrashError):
        await forgotten(old, new, tmp_path, wish(), CrashFailpoint(point="after deleting reflections"))
    monkeypatch.setattr(forgetting, "is_moved", never)
    with pytest.raises(FatalError, match="topic reflections does not exist"):
        await forgotten(old, new, tmp_path, wish())


async def test_what_only_an_archive_knows_of_a_run_is_still_known_to_a_second_attempt(
    tmp_path: Path,
) -> None:
    source, file, copy = (await lived()).log, tmp_path / "a.archive", tmp_path / "b.archive"
    await archived(source, file)
    shutil.copy(file, copy)
    passed = CrashFailpoint()
    await forgotten(await _expired(file), new_log(), tmp_path, wish(), passed, [copy])
    marked = len(passed.points) - passed.points[::-1].index("after creating restoring")
    assert passed.points[marked] == "before produce"

    for at in range(marked, marked + 5):
        old, new = await _expired(file), new_log()
        shutil.copy(file, copy)
        with pytest.raises(CrashError):
            await forgotten(old, new, tmp_path, wish(), CrashFailpoint(at), [copy])
        await forgotten(old, new, tmp_path, wish(), None, [copy])
        assert not any(b"lesson of named-in-task" in raw for raw in everything(new)), passed.points[at - 1]
        with ArchiveReader(copy) as archive:
            assert not any(names_subject((r.key or b"") + (r.value or b"")) for r in archive.records())
        assert sorted(left_in(tmp_path)) == [file.name, copy.name]


async def _expired(file: Path) -> MemoryLog:
    """Return a log that has no word any more of what runs said."""
    log = await _copy(file)
    expired: tuple[AnyTopic, ...] = (topics.TRACES, topics.REFLECTIONS, *topics.SCAN)
    for topic in expired:
        for partition in log._store.partitions(topic.name):
            partition.expire(partition.end)
    return log


async def test_a_prefix_that_went_elsewhere_names_where(tmp_path: Path) -> None:
    old, new = (await lived()).log, new_log()
    there, here = place("old", old), place("new", new)
    await forgetting.move(there, here, tmp_path, wish(), (), configs={}, replication=1, clock=ManualClock())
    with pytest.raises(FatalError, match="was moved to new: continue with --to new"):
        await forgetting.is_moved(there, place("other", new_log()))


async def test_a_prefix_that_is_gone_went_to_the_new_one_only_if_that_says_so_and_is_whole(
    tmp_path: Path,
) -> None:
    old, new, other = (await lived()).log, new_log(), new_log()
    await forgotten(old, new, tmp_path, wish())
    gone, here = place("old", old), place("new", new)
    assert await forgetting.is_moved(gone, here)
    assert not await forgetting.is_moved(gone, place("other", other))
    await here.admin.create("restoring", 1, 1, {})
    assert not await forgetting.is_moved(gone, here)


async def test_a_playbook_whose_name_names_the_subject_goes_only_if_that_is_asked_for(tmp_path: Path) -> None:
    log = (await lived()).log
    file, selector = tmp_path / "a.archive", Selector(subjects=Subjects(("refunds",)))
    await archived(log, file)
    runs = found_runs([file], selector)
    with pytest.raises(ErasureError, match="--with-playbooks"):
        without(file, tmp_path / "b", wish(selector), runs)
    assert not (tmp_path / "b").exists()
    without(file, tmp_path / "b", wish(selector, with_playbooks=True), runs)
    with ArchiveReader(tmp_path / "b") as archive:
        assert not any(b"refunds" in (record.key or b"") for record in archive.records())
    new = new_log()
    await restored(tmp_path / "b", new)
    assert (await audit(new)).violations == ()
