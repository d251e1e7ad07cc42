"""Every error has one of three fates, in every service: tried again, dead-lettered, or the end of the process.

``FATES`` says which. A new type of error fails here until it has its line.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stamina

import combee
import combee_schemas
from combee.adapters.ports import (
    CombeeError,
    DrainingError,
    FatalError,
    FencedError,
    Log,
    Outgoing,
    PoisonError,
    PromptTooLongError,
    TransientError,
)
from combee.cli.learn.learning import Learning
from combee.control.controller import Controller
from combee.core.batching.sizing.policy import SizingPolicy
from combee.core.formats.intake import Sample
from combee.core.playbook.versions import empty
from combee.process.worker import session
from combee.process.worker.session import run_sessions, together
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.control import BatchSize
from combee_schemas.model import Prompt
from combee_schemas.scan import Update
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import Deployment
from support.failpoints.points import CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.ledger import NAME, dead_letters, outgoing, reflection
from support.models import ModelClient, ScriptedModel, echo
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")

FATES: Mapping[str, str] = {
    "TransientError": "transient",
    "CallFailedError": "transient",
    "PausedError": "transient",
    "StalledError": "transient",
    "FencedError": "transient",
    "PoisonError": "poison",
    "AbsentError": "poison",
    "PromptTooLongError": "poison",
    "CutOffError": "poison",
    "CallRefusedError": "poison",
    "UnansweredError": "poison",
    "UnusableReplyError": "poison",
    "FatalError": "fatal",
    "ConfigurationError": "fatal",
    "ArchiveError": "fatal",
    "ErasureError": "fatal",
    "OtherVersionError": "fatal",
    "SettingsError": "fatal",
    "EmbeddedKafkaError": "fatal",
    "BrokerStartError": "fatal",
    "DirectoryInUseError": "fatal",
    "DiskFullError": "fatal",
    "DownloadError": "fatal",
    "JarMismatchError": "fatal",
    "JavaNotFoundError": "fatal",
    "PortTakenError": "fatal",
    # The record stays open: for the next worker, or until its playbook is paused no longer.
    "DrainingError": "open",
    "HeldBackError": "open",
    "PassOverError": "open",
}
ROOTS: Mapping[str, tuple[str, ...]] = {
    "transient": ("TransientError", "FencedError"),
    "poison": ("PoisonError",),
    "fatal": ("FatalError",),
    "open": ("DrainingError", "HeldBackError", "PassOverError"),
}
"""Whom the services catch, per fate; the others are of their kind."""


CLASS = re.compile(r"^class (\w+)\(([\w, ]+)\):", re.MULTILINE)


def errors() -> dict[str, set[str]]:
    """Return every error of ours, however deep, with all that it descends from."""
    roots = (Path(str(one.__file__)).parent for one in (combee, combee_schemas))
    sources = (path.read_text() for root in roots for path in root.rglob("*.py"))
    classes = (found for text in sources for found in CLASS.findall(text))
    bases = {name: set(above.split(", ")) for name, above in classes}
    found: dict[str, set[str]] = {"CombeeError": set()}
    while news := {name for name, above in bases.items() if name not in found and above & found.keys()}:
        for name in news:
            above = bases[name] & found.keys()
            found[name] = above.union(*(found[one] for one in above))
    return {name: above for name, above in found.items() if name != "CombeeError"}


def test_every_error_type_has_its_fate() -> None:
    assert errors().keys() == FATES.keys()


def test_an_error_shares_the_fate_of_the_type_by_which_it_is_caught() -> None:
    for name, above in errors().items():
        assert ({name} | above) & set(ROOTS[FATES[name]]), name


# ---- through every service


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(session, "RETRY_S", 0.005)
    with stamina.set_testing(True, attempts=1_000):
        yield


class Fault(CrashFailpoint):
    """Raises an error once, at the first point of this name."""

    def __init__(self, at: str, error: CombeeError) -> None:
        super().__init__()
        self._point_at = at
        self._errors = [error]

    def reach(self, point: str) -> None:
        """Pass a point."""
        if point == self._point_at:
            self.spring()

    def spring(self) -> None:
        """Raise the error, if it has not been raised."""
        if self._errors:
            raise self._errors.pop()

    @property
    def sprung(self) -> bool:
        """Whether it has been raised."""
        return not self._errors


class World:
    """A deployment in which one thing goes wrong once."""

    def __init__(self, at: str, error: CombeeError) -> None:
        self.fault = Fault(at, error)
        # Nothing is carried: a lesson for which the model has no reply is lost.
        self.deployment = Deployment(
            model=ScriptedModel(self.answer), partitions=1, batch_size=1, carry=False, trust="lab"
        )
        self.log = self.deployment.log
        self._asking = at == "ask"

    def answer(self, prompt: Prompt) -> Mapping[str, Any]:
        """Answer like a model, or raise what a model does."""
        if self._asking:
            self.fault.spring()
        return echo(prompt)

    async def service(self, name: str) -> None:
        """Run a service as the composition root does."""
        seen: Log = FaultInjectingLog(self.log, self.fault)
        match name:
            case "shuffle" | "publish":
                await run_sessions(
                    name,
                    lambda _stop: self.deployment._role(name, seen),
                    asyncio.Event(),
                    self.deployment.clock,
                )
            case "control":
                await run_sessions(
                    name, lambda stop: self._control(seen, stop), asyncio.Event(), self.deployment.clock
                )
            case _:
                await self.deployment._role(name, seen)

    async def _control(self, log: Log, stop: asyncio.Event) -> None:
        control = Controller(log, self.deployment.clock, SizingPolicy(configured=84))
        work = control.session(stop, lambda: None)
        await together(work, control.playbooks.view.run(), control.sizes.run())

    @asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.service(name))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an error is raised in a service, and how its work looks from outside."""

    service: str
    at: str
    send: Callable[[int], list[Outgoing]]
    """Return the ``n``-th piece of work, from 0."""
    done: Callable[[World], int]
    """Count what came of the work."""
    buried: Callable[[World], int] = lambda world: len(dead_letters(world.log))
    """Count what did not."""
    poison: str = "poison"
    """The fate of poison: where it is about no one record, nothing may be written, and somebody must act."""


def trace(n: int) -> list[Outgoing]:
    one = Trace(trace_id=f"t-{n}", playbook=NAME, task=f"task {n}", answer="a")
    return [Outgoing(topic="traces", value=encode(one), partition=0)]


def version(n: int) -> list[Outgoing]:
    name = f"{NAME}-{n}"
    one = empty(name).model_copy(update={"version": 1})
    return [Outgoing(topic="playbooks", key=name.encode(), value=encode(one))]


def failed(world: World) -> int:
    return sum(one.result.status == "failed" for one in ledger.messages(world.log, topics.UPDATES, Update))


def counted(topic: topics.AnyTopic) -> Callable[[World], int]:
    return lambda world: len(ledger.records(world.log, topic))


def learned(world: World) -> int:
    return counted(topics.UPDATES)(world) - failed(world)


def unsized(world: World) -> int:
    """Count sizes that were not written, once the next one is."""
    sized = {one.playbook for one in ledger.messages(world.log, topics.BATCH_SIZES, BatchSize)}
    return int(f"{NAME}-0" not in sized)


def reflections(n: int) -> list[Outgoing]:
    return [outgoing(reflection(n, f"{NAME}-{n}"))]  # one playbook's batches wait for each other


PLACES = (
    Place(service="reflect", at="ask", send=trace, done=counted(topics.REFLECTIONS)),
    Place(service="reflect", at="before produce", send=trace, done=counted(topics.REFLECTIONS)),
    Place(service="scan", at="ask", send=reflections, done=learned, buried=failed),
    Place(service="scan", at="before produce", send=reflections, done=learned),
    Place(
        service="shuffle",
        at="before transaction",
        send=reflections,
        done=counted(topics.BATCHES),
        poison="fatal",
    ),
    Place(
        service="shuffle",
        at="sent in transaction",
        send=reflections,
        done=counted(topics.BATCHES),
        poison="fatal",
    ),
    Place(service="publish", at="sent in transaction", send=reflections, done=counted(topics.HISTORY)),
    Place(
        service="control",
        at="before produce",
        send=version,
        done=counted(topics.BATCH_SIZES),
        buried=unsized,
    ),
)
RAISED: tuple[type[CombeeError], ...] = (
    TransientError,
    FencedError,
    PoisonError,
    PromptTooLongError,
    FatalError,
)
BEFORE: Mapping[str, tuple[str, ...]] = {"scan": ("shuffle",), "publish": ("shuffle", "scan")}
"""Who makes a service's input."""


def fate(place: Place, error: type[CombeeError]) -> str:
    found = FATES[error.__name__]
    return place.poison if found == "poison" else found


@pytest.mark.parametrize("error", RAISED, ids=lambda error: error.__name__)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.service}, {place.at}")
async def test_every_error_meets_its_fate_in_every_service(place: Place, error: type[CombeeError]) -> None:
    world = World(place.at, error("made for this test"))
    async with world.deployment.running(BEFORE.get(place.service, ())), world.running(place.service) as task:
        await world.log.produce(*place.send(0))
        if fate(place, error) == "fatal":
            async with asyncio.timeout(10):
                with pytest.raises(error):
                    await task
            assert place.done(world) == 0
            assert dead_letters(world.log) == []
            return
        await world.until(lambda: world.fault.sprung)
        await world.log.produce(*place.send(1))
        whole = 2 if fate(place, error) == "transient" else 1
        await world.until(lambda: place.done(world) >= whole and place.buried(world) == 2 - whole)
        assert not task.done()
        assert place.done(world) == whole


@pytest.mark.parametrize("service", ["reflect", "scan"])
async def test_what_a_stopping_worker_no_longer_asks_is_left_to_the_next(service: str) -> None:
    (place,) = (one for one in PLACES if (one.service, one.at) == (service, "ask"))
    world = World("ask", DrainingError("stopping"))
    async with world.deployment.running(BEFORE.get(service, ())):
        async with world.running(service) as task:
            await world.log.produce(*place.send(0))
            await world.until(lambda: world.fault.sprung)
            assert not task.done()
        async with world.running(service):
            await world.until(lambda: place.done(world) == 1)
    assert dead_letters(world.log) == []


async def test_a_reflection_that_cannot_be_moved_home_is_a_dead_letter_and_the_next_is_cut() -> None:
    world = World("before produce", PoisonError("the record is too large for the topic"))
    world.deployment = Deployment(partitions=2, batch_size=1)
    world.log = world.deployment.log
    home = await world.log.partition_for("reflections", NAME.encode())
    sent = outgoing(reflection(0))
    foreign = Outgoing(topic=sent.topic, key=sent.key, value=sent.value, partition=1 - home)
    async with world.running("shuffle") as task:
        await world.log.produce(foreign)
        await world.until(lambda: world.fault.sprung)
        await world.log.produce(outgoing(reflection(1)))
        await world.until(lambda: bool(ledger.batches(world.log)) and bool(dead_letters(world.log)))
        assert not task.done()
    (letter,) = dead_letters(world.log)
    assert letter.value == foreign.value


async def test_a_reason_that_utf_8_cannot_hold_stops_nobody() -> None:
    world = World("ask", PoisonError("the model's server answered \ud800"))
    async with world.running("reflect") as task:
        await world.log.produce(*trace(0), *trace(1))
        await world.until(lambda: len(ledger.records(world.log, topics.REFLECTIONS)) == 1)
        assert not task.done()
    assert [one.reason for one in dead_letters(world.log)] == ["the model's server answered ?"]


async def test_a_sample_that_no_model_can_answer_is_a_wrong_run_and_the_others_are_learned() -> None:
    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if "question 0" in prompt.user and prompt.reply_name == "answer":
            raise PromptTooLongError("too long")
        said = {"answer": {"final_answer": "42"}, "reflection": {"key_insight": "an insight"}}
        return said.get(prompt.reply_name) or echo(prompt)

    deployment = Deployment(model=ScriptedModel(answer), batch_size=2)
    learning = Learning(deployment.log, ModelClient(deployment.model), deployment.clock, concurrency=1)
    samples = [
        Sample(trace_id=f"t-{n}", playbook=NAME, question=f"question {n}", target="42") for n in range(2)
    ]
    async with deployment.running(), asyncio.timeout(10):
        report = await learning.run(samples, NAME, stall_s=60)
    assert (report.published, report.applied) == (2, 2)
