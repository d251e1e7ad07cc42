"""A deployment that knows somebody, what is asked to be forgotten, and where a name is looked for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing
from combee.core.log.erasure.selector import Marker, Selector, Subjects
from combee.log.archive import forgetting
from combee.log.archive.erasing import Wish
from combee.log.archive.forgetting import Place
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.command import Command
from combee_schemas.erasure import Erasure
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import Entry
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace
from support import ledger
from support.archives import FaultInjectingTopics, MemoryTopics
from support.clock import ManualClock
from support.deployment import CONTROL, ROLES, Deployment
from support.failpoints.points import CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.ledger import NAME, outgoing, reflection

SUBJECT = "jane.roe@example.com"
SPELT = "Jane.Roe@Example.com"
HONEST = 17
"""Reflections of others; with two traces and one reflection of the subject they make two batches."""


def trace(trace_id: str, **fields: str) -> Trace:
    run = {"task": "a refund", "trajectory": "looked", "answer": f"lesson of {trace_id}", "feedback": "good"}
    return Trace.model_validate({"trace_id": trace_id, "playbook": NAME, **run, **fields})


async def lived() -> Deployment:
    """Let a deployment learn from the subject's runs and from others, and people edit, label and roll back."""
    deployment = Deployment(batch_size=10, copies=2, fan_in=2)
    old = Entry(id="misc-00001", section="OTHERS", content=f"escalate to {SUBJECT}")
    by_hand = Operation(kind=OperationKind.ADD, section="OTHERS", content=f"by hand: ring {SPELT}")
    runs = (
        trace("named-in-answer", answer=f"write to {SPELT} first"),
        trace("named-in-task", task=f"a refund for {SUBJECT}"),
    )
    async with deployment.running((*ROLES, CONTROL)) as running:
        steps = (
            Command(command_id="c-1", playbook=NAME, kind="import", entries=(old,)),
            Command(command_id="c-2", playbook=NAME, kind="edit", operations=(by_hand,)),
        )
        for number, command in enumerate(steps, 1):
            await running.log.produce(outgoing(command))
            await running.until(lambda number=number: len(ledger.versions(running.log)) == number)  # type: ignore[misc]
        await running.log.produce(
            *map(topics.TRACES.record, runs),
            *(outgoing(reflection(n)) for n in range(HONEST)),
            outgoing(reflection(90, reflection_id=f"{SUBJECT}/17", source=Source(name=SPELT))),
            Outgoing(topic="reflections", key=NAME.encode(), value=f"unreadable, of {SUBJECT}".encode()),
            topics.OUTCOMES.record(Outcome(run_id="o-1", playbook=NAME, caller=SPELT, success=True)),
            topics.OUTCOMES.record(Outcome(run_id="o-2", playbook=NAME, success=False)),
        )
        await running.until(lambda: ledger.applied(running.log) == HONEST + 3)
        await running.log.produce(
            outgoing(Command(command_id="c-3", playbook=NAME, kind="promote", label="production", version=2)),
            outgoing(Command(command_id="c-4", playbook=NAME, kind="rollback", version=2)),
        )
        await running.until(lambda: len(ledger.versions(running.log)) == 5)
        await running.until(lambda: not ledger.behind(running.log))
        await running.until(lambda: not ledger.behind(running.log, {CONTROL: (topics.OUTCOMES,)}))
    return deployment


def wish(selector: Selector | None = None, *, with_playbooks: bool = False) -> Wish:
    chosen = selector or Selector(subjects=Subjects((SUBJECT,)))
    return Wish(
        selector=chosen,
        marker=Marker(b"secret"),
        erasure_id="e-1",
        issued_by="user:ops@host",
        at_ms=7,
        with_playbooks=with_playbooks,
    )


def place(prefix: str, log: MemoryLog, failpoint: CrashFailpoint | None = None) -> Place:
    if failpoint is None:
        return Place(prefix=prefix, log=log, admin=MemoryTopics(log))
    injecting = FaultInjectingLog(log, failpoint)
    return Place(prefix=prefix, log=injecting, admin=FaultInjectingTopics(log, failpoint))


async def forgotten(
    old: MemoryLog,
    new: MemoryLog,
    folder: Path,
    asked: Wish,
    failpoint: CrashFailpoint | None = None,
    archives: Sequence[Path] = (),
) -> list[Erasure]:
    """Do what ``combee forget --to new`` does."""
    there, here = place("old", old, failpoint), place("new", new, failpoint)
    erasures: list[Erasure] = []
    if not await forgetting.is_moved(there, here):
        await forgetting.begin_anew(there, here, folder)
        erasures += await forgetting.move(
            there, here, folder, asked, archives, configs={}, replication=1, clock=ManualClock()
        )
    await forgetting.finish(there, here, folder, archives)
    return erasures


def everything(log: MemoryLog) -> Iterator[bytes]:
    """Yield all bytes that a log holds, also those of transactions that were aborted."""
    for partitions in log._store._topics.values():
        for partition in partitions:
            for slot in partition.slots:
                if slot.record is not None:
                    yield slot.record.key or b""
                    yield slot.record.value or b""
                    yield from (value or b"" for _, value in slot.record.headers)


def names_subject(raw: bytes) -> bool:
    return SUBJECT.encode() in raw.lower()
