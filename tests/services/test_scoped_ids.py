"""An id means something within its playbook only."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import Outgoing, PoisonError, TopicPartition
from combee.cli.learn.learning import Learning
from combee.core.formats.intake import Item, Sample
from combee.core.log.ledger import LedgerReport
from combee.core.names import identity
from combee.log.commands import dead_letters
from combee.log.inspection import audit
from combee.log.inspection.learned import Report
from combee.log.inspection.lineage import lineage
from combee.log.inspection.tracker import GAP, Tracker, _runs
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.model import Prompt
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.models import ModelClient, ScriptedModel, echo
from support.reading import run, run_json, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")

ONE, TWO = "tenant-a/refunds", "tenant-b/refunds"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AGAIN_S", 0.0)


def trace(playbook: str = ONE, trace_id: str = "run-1", answer: str = "", **fields: Any) -> Trace:
    given = {"trace_id": trace_id, "playbook": playbook, "task": "a task", "answer": answer or trace_id}
    return Trace.model_validate(given | fields)


def note(playbook: str = ONE, one: str = "note-1", text: str = "a note") -> Reflection:
    return Reflection(reflection_id=one, playbook=playbook, key_insight=text)


async def send(deployment: Deployment, *items: Trace | Reflection) -> None:
    for item in items:  # one after the other, so that offsets follow
        await deployment.log.produce(outgoing(item))


async def settled(deployment: Deployment) -> None:
    await deployment.until(lambda: not ledger.behind(deployment.log))


async def learn(deployment: Deployment, items: Sequence[Item], playbook: str = ONE) -> Report:
    """Learn as the command does, services running."""
    learning = Learning(deployment.log, ModelClient(deployment.model), deployment.clock, concurrency=2)
    known = await learning.known(items, playbook)
    return known or await learning.run(items, playbook, stall_s=60)


async def judged(deployment: Deployment) -> LedgerReport:
    report = await audit.audit(deployment.log)
    counts = report.traces
    fates = counts.reflected + counts.pending + counts.dead_lettered + counts.duplicates + counts.lost
    assert counts.acknowledged == fates == len(ledger.messages(deployment.log, topics.TRACES, Trace))
    return report


def lessons(deployment: Deployment, playbook: str) -> set[str]:
    return {entry.content for entry in ledger.latest(deployment.log, playbook).entries}


# ---- two playbooks


async def test_the_same_trace_id_in_two_playbooks_is_learned_by_both() -> None:
    async with Deployment(batch_size=1).running() as running:
        await send(running, trace(ONE, answer="mine"), trace(TWO, answer="yours"))
        await running.until(lambda: all(ledger.applied(running.log, name) == 1 for name in (ONE, TWO)))
        await settled(running)
    assert (lessons(running, ONE), lessons(running, TWO)) == ({"learned: mine"}, {"learned: yours"})
    report = await judged(running)
    assert (report.good, report.traces.reflected, report.conflicts) == (True, 2, ())


async def test_a_file_learned_into_a_second_playbook_is_learned_there_too() -> None:
    async with Deployment().running() as running:
        for name in (ONE, TWO):
            report = await learn(running, [trace(name, f"run-{n}") for n in range(3)], name)
            assert (report.published, report.applied, report.duplicates) == (3, 3, 0)


async def test_nobody_takes_the_place_of_another_playbook_s_trace_or_marks_it_as_dead() -> None:
    """Whoever knows a trace's id can name a reflection as the one that will come of it, in a playbook of theirs."""
    ids = identity.derived_ids(TWO, "run-1")

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if "of no use" in prompt.user:
            raise PoisonError("no use")
        return echo(prompt)

    async with Deployment(model=ScriptedModel(answer)).running() as running:
        await send(
            running, trace(ONE, "run-0", answer="of no use")
        )  # reflect has begun: it restores nothing of this
        await running.until(lambda: len(ledger.dead_letters(running.log)) == 1)
        await send(running, *(note(ONE, one) for one in ids), trace(ONE, answer="of no use"))
        await running.until(lambda: len(ledger.dead_letters(running.log)) == 2)
        report = await learn(running, [trace(TWO, answer="mine"), note(TWO, "run-1")], TWO)
    assert (report.applied, report.dead_lettered) == (2, 0)
    assert lessons(running, TWO) == {"learned: mine", "a note"}


async def test_a_dead_letter_of_the_same_id_elsewhere_ends_nobody_s_waiting() -> None:
    deployment = Deployment()
    async with Tracker(deployment.log, TWO, deployment.clock).running() as tracker:
        for name, one in ((ONE, "a"), (TWO, "b")):
            await deployment.log.produce(letter(name, one))
        await deployment.until(lambda: tracker.fate(identity.reflection_id(TWO, "b")).is_dead)
        assert not any(tracker.fate(identity.reflection_id(name, "a")).is_dead for name in (ONE, TWO))


def letter(playbook: str, record_id: str) -> Outgoing:
    found = DeadLetter(
        origin_topic="traces",
        origin_partition=0,
        origin_offset=0,
        service="reflect",
        reason="no use",
        record_id=record_id,
        playbook=playbook,
    )
    return Outgoing(topic="dead-letters", key=b"traces", value=encode(found))


async def test_why_shows_no_run_of_another_playbook() -> None:
    async with Deployment(batch_size=1).running() as running:
        await send(running, trace(TWO, answer="a secret of theirs"), trace(ONE, answer="mine"))
        await send(running, trace(ONE, answer="the same id again"))
        await running.until(lambda: ledger.applied(running.log, ONE) == 1)
        await settled(running)
    entry = ledger.latest(running.log, ONE).entries[0].id
    told = await lineage(running.log, ONE, entry, traces=True, on_progress=lambda *_: None)
    assert [one.trace and one.trace.answer for one in told.sources] == ["mine"]


# ---- the same id with other content


async def test_the_same_id_with_other_content_is_listed_as_a_conflict_and_the_first_counts() -> None:
    async with Deployment(batch_size=1).running() as running:
        await send(running, trace(answer="first"), trace(answer="second"), trace(answer="first"))
        await send(running, note(text="first"), note(text="second"), note(text="first"))
        flush = Command(command_id="c", playbook=ONE, kind="flush", through_offset=0)
        for version in (1, 1, 2):
            command = flush.model_copy(
                update={"kind": "rollback", "version": version, "issued_at_ms": version}
            )
            await running.log.produce(ledger.outgoing(command))
        await running.until(lambda: ledger.applied(running.log, ONE) == 2)
        await settled(running)
    assert lessons(running, ONE) <= {"learned: first", "first"}
    report = await judged(running)
    assert (report.good, report.traces.duplicates, report.duplicates) == (True, 2, 2)
    assert sorted(one.split(":")[1].split("[")[0] for one in report.conflicts) == [
        " commands",
        " reflections",
        " traces",
    ]
    (told,) = [one for one in report.conflicts if "traces" in one]
    assert "@1: run-1 of" in told
    assert told.endswith("@0")


async def test_a_reflection_asked_for_twice_is_no_conflict_with_itself() -> None:
    """A worker killed between answer and commit has the model asked again, which says it in other words."""
    one = trace()
    twice = [
        Reflection(
            reflection_id=identity.reflection_id(ONE, "run-1"),
            playbook=ONE,
            key_insight=words,
            trace_id="run-1",
            trace_digest=identity.fingerprint(one),
        )
        for words in ("so", "or so")
    ]
    deployment = Deployment()
    await send(deployment, one, *twice)
    report = await judged(deployment)
    assert (report.conflicts, report.duplicates, report.traces.reflected) == ((), 1, 1)


def test_times_costs_and_fields_to_come_make_no_other_content() -> None:
    assert identity.fingerprint(trace(created_at_ms=1)) == identity.fingerprint(trace(created_at_ms=2))
    assert identity.fingerprint(trace(metadata={"a": "1", "b": "2"})) == identity.fingerprint(
        trace(metadata={"b": "2", "a": "1"})
    )
    assert identity.fingerprint(trace(feedback="")) == identity.fingerprint(trace())
    assert identity.fingerprint(trace(answer="x")) != identity.fingerprint(trace(answer="y"))


async def test_learn_says_which_lines_conflict_and_waits_for_none_of_them() -> None:
    async with Deployment().running() as running:
        first = await learn(running, [trace(answer="first"), trace(answer="other"), note()])
        assert (first.published, first.applied, first.duplicates, first.conflicts) == (2, 2, 1, ("run-1",))
        items: list[Item] = [trace(answer="other"), note(text="other"), note(), trace(trace_id="run-2")]
        again = await learn(running, items)
        assert (again.published, again.applied, again.duplicates) == (1, 1, 3)
        assert again.conflicts == ("run-1", "note-1")
        known = await learn(running, items)
    assert (known.published, known.conflicts) == (0, ("run-1", "note-1"))


async def test_a_line_whose_id_waits_with_other_content_is_a_conflict_and_not_applied() -> None:
    deployment = Deployment()
    async with deployment.running(["reflect"]):
        await send(deployment, trace(answer="first"))
        await settled_reflect(deployment)
    async with deployment.running():
        report = await learn(deployment, [trace(answer="other"), trace(trace_id="run-2")])
    assert (report.published, report.applied, report.conflicts) == (2, 1, ("run-1",))
    assert lessons(deployment, ONE) == {"learned: first", "learned: run-2"}


async def settled_reflect(deployment: Deployment) -> None:
    await deployment.until(lambda: not [at for at in ledger.behind(deployment.log) if at[0] == "reflect"])


async def test_a_sample_whose_reflection_waits_is_not_answered_again() -> None:
    deployment = Deployment()
    sample = Sample(trace_id="t-1", playbook=ONE, question="why?", target="because")
    async with deployment.running(["reflect"]):
        await send(deployment, trace(trace_id="t-1", answer="as it was answered before"))
        await settled_reflect(deployment)
    async with deployment.running():
        report = await learn(deployment, [sample])
    assert (report.applied, report.conflicts) == (1, ())
    assert len(ledger.messages(deployment.log, topics.TRACES, Trace)) == 1


# ---- the account of traces


@pytest.mark.parametrize("failed", ["run-2", "run-2~by~shop"])
async def test_every_retained_trace_is_reflected_pending_dead_lettered_or_a_duplicate(failed: str) -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if "of no use" in prompt.user:
            raise PoisonError("no use")
        return echo(prompt)

    deployment = Deployment(model=ScriptedModel(answer))
    async with deployment.running(["reflect"]):
        await send(deployment, trace(), trace(), trace(trace_id=failed, answer="of no use"))
        await settled_reflect(deployment)
    await send(deployment, trace(trace_id="run-3"))
    report = await judged(deployment)
    assert report.good
    assert report.traces.model_dump() == {
        "acknowledged": 4,
        "reflected": 1,
        "pending": 1,
        "dead_lettered": 1,
        "duplicates": 1,
        "lost": 0,
    }

    found = await ledger.stored_letters(deployment.log)
    await dead_letters.resend(deployment.log, deployment.clock, found, {})
    assert (await judged(deployment)).traces.pending == 2
    deployment.model.answer = echo
    async with deployment.running(["reflect"]):
        await settled_reflect(deployment)
    report = await judged(deployment)
    assert (report.good, report.traces.reflected, report.traces.duplicates) == (True, 3, 2)


async def passed(deployment: Deployment) -> None:
    """Commit all traces as if they had been reflected on."""
    ends = await deployment.log.ends("traces")
    committed = {TopicPartition(topic="traces", partition=number): end for number, end in ends.items()}
    deployment.log._store.committed["reflect"] = committed


async def test_a_trace_that_reflect_has_passed_and_nothing_came_of_is_lost_and_no_promise_kept() -> None:
    deployment = Deployment()
    await send(deployment, trace(ONE), trace(TWO), trace(TWO, "run-2"))
    await deployment.log.produce(outgoing(note(ONE, identity.reflection_id(ONE, "run-1"))))
    await passed(deployment)
    report = await judged(deployment)
    assert (report.good, report.traces.reflected, report.traces.lost) == (False, 1, 2)
    assert all("has no reflection and is not a dead letter" in one for one in report.violations)

    await send(deployment, trace(TWO), trace(TWO, "run-2"))
    async with deployment.running(["reflect"]):
        await settled_reflect(deployment)
    report = await judged(deployment)
    assert (report.good, report.traces.reflected, report.traces.duplicates) == (True, 3, 2)


async def test_a_trace_nobody_can_read_is_a_dead_letter_or_told_of() -> None:
    deployment = Deployment()
    await deployment.log.produce(Outgoing(topic="traces", key=b"x", value=b"no trace", partition=0))
    async with deployment.running(["reflect"]):
        await settled_reflect(deployment)
    assert (await judged(deployment)).good
    deployment.log._store.partitions("dead-letters")[0].expire(1)
    assert not (await judged(deployment)).good


# ---- what the commands print


def finished(*items: Trace | Reflection) -> Deployment:
    """Return a deployment that has learned from these and stopped."""
    deployment = Deployment(batch_size=1)

    async def work() -> None:
        async with deployment.running():
            await send(deployment, *items)
            await settled(deployment)

    asyncio.run(work())
    deployment.log._store.notify()  # a fresh event: the old one belongs to the loop that has ended
    return deployment


def test_the_ledger_lists_traces_and_conflicts_and_ends_with_1_if_a_trace_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = finished(trace(), trace(answer="other"), trace(TWO))
    use_log(monkeypatch, deployment.log)
    told = run("ledger")
    assert told.exit_code == 0
    rows = [line.split() for line in told.stdout.splitlines()]
    assert ["traces", "reflected", "pending", "dead-lettered", "duplicates", "lost"] in rows
    assert ["3", "2", "0", "0", "1", "0"] in rows
    assert f"run-1 of {ONE} has other content than traces[" in told.stdout
    shown = run_json("ledger")
    assert shown["traces"]["duplicates"] == len(shown["conflicts"]) == 1

    asyncio.run(send(deployment, trace(TWO, "run-9")))
    asyncio.run(passed(deployment))
    assert run_json("ledger", code=1)["traces"]["lost"] == 1
    assert f"trace run-9 of {TWO}" in run("ledger").stdout


def test_learn_names_the_conflicting_lines_of_a_known_file_and_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_log(monkeypatch, finished(trace(), note()).log)
    file = tmp_path / "runs.jsonl"
    lines = [
        {"trace_id": "run-1", "task": "another"},
        {"reflection_id": "note-1", "key_insight": "another"},
        {"reflection_id": "note-1", "key_insight": "a note"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    told = run("learn", str(file), "--playbook", ONE, "--simulated")
    assert told.exit_code == 3, told.output
    for one in ("run-1", "note-1"):
        assert f"conflict: {ONE} has other content under the id {one};" in told.stderr
    shown = run_json("learn", str(file), "--playbook", ONE, "--simulated", code=3)
    assert (shown["conflicts"], shown["reflections"]["duplicates"]) == (["run-1", "note-1"], 3)


def test_offsets_are_read_in_runs() -> None:
    assert [list(one) for one in _runs([1, 2, 9, GAP + 10, 5 * GAP])] == [[1, 2, 9], [GAP + 10], [5 * GAP]]
    assert list(_runs([])) == []
