"""What /healthz and /readyz judge by."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress

import pytest
import structlog

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import (
    CombeeError,
    ConfigurationError,
    FencedError,
    Outgoing,
    Record,
    TopicPartition,
    TransientError,
)
from combee.process.telemetry.health import IDLE_S, STUCK_S, Health
from combee.process.telemetry.logs import AWAY as AWAY_EVENT
from combee.process.telemetry.logs import BACK, REPEATED_S, OutageRateLimit
from combee.process.worker import outage
from combee.process.worker import views as view_module
from combee.process.worker.loop import Loop
from combee.process.worker.session import run_sessions
from combee.process.worker.views import View
from combee_schemas import topics
from combee_schemas.playbook import Playbook
from support.clock import ManualClock
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")
DEADLINE_S = 5.0


class FixedView:
    def __init__(self, *, current: bool) -> None:
        self.is_current = current


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    health = Health(clock, dead_letters_per_minute=3)
    health.turned()
    return health


def red(health: Health) -> list[str]:
    return [one.name for one in health.conditions() if not one.good]


def test_a_process_that_works_is_ready(health: Health) -> None:
    assert health.alive().good
    assert red(health) == []


def test_an_event_loop_that_does_not_turn_is_not_alive(health: Health, clock: ManualClock) -> None:
    clock.advance(STUCK_S)
    assert not health.alive().good
    assert "no turn of the event loop for 10 s" in health.alive().says
    assert red(health) == ["alive"]


async def test_a_turning_event_loop_beats(health: Health, clock: ManualClock) -> None:
    clock.advance(STUCK_S)
    beating = asyncio.create_task(health.beat())
    await asyncio.sleep(0)
    assert health.alive().good
    beating.cancel()


def test_before_anything_is_assigned_it_is_not_ready(clock: ManualClock) -> None:
    assert red(Health(clock, dead_letters_per_minute=3)) == ["assigned"]


def test_a_work_loop_that_waits_for_something_is_not_ready_but_alive(
    health: Health, clock: ManualClock
) -> None:
    clock.advance(IDLE_S)
    health._beat_at = clock.monotonic()
    assert red(health) == ["assigned"]
    assert health.alive().good
    health.turned()
    assert red(health) == []


def test_every_view_must_be_current(health: Health) -> None:
    health.views = [FixedView(current=True), FixedView(current=False)]
    assert red(health) == ["views"]
    assert "1 of 2 views" in next(one.says for one in health.conditions() if one.name == "views")


def test_a_model_that_refuses_for_good_makes_it_red_and_says_why(clock: ManualClock) -> None:
    reasons: list[str | None] = ["401; check the API key", None]
    health = Health(clock, dead_letters_per_minute=3, refusal=lambda: reasons[0])
    health.turned()
    assert red(health) == ["model"]
    assert "check the API key" in next(one.says for one in health.conditions() if one.name == "model")
    reasons.pop(0)
    assert red(health) == []


def test_dead_letters_make_it_red_only_while_there_are_many_within_a_minute(
    health: Health, clock: ManualClock
) -> None:
    for _ in range(2):
        health.dead_lettered()
    clock.advance(50)
    health._beat_at = clock.monotonic()
    health.turned()
    assert red(health) == []
    health.dead_lettered()
    assert red(health) == ["dead_letters"]
    clock.advance(11)
    health._beat_at = clock.monotonic()
    assert red(health) == []


# ---- what tells it


class Handled:
    service = "worker"
    topics: Sequence[str] = ("reflections",)
    bounded_topics = frozenset({"reflections"})

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def assigned(self, starts: dict[TopicPartition, int]) -> None: ...

    async def handle(self, record: Record) -> None:  # noqa: ARG002
        await self.gate.wait()

    def drain(self) -> None: ...

    def poisoned(self, record: Record) -> tuple[str, str]:  # noqa: ARG002
        return "", ""


async def test_each_turn_of_the_loop_tells_the_open_records_of_its_partitions(clock: ManualClock) -> None:
    log = MemoryLog(clock, partitions=1)
    await log.produce(*(Outgoing(topic="reflections", value=b"x", partition=0) for _ in range(3)))
    handler, turns, stop = Handled(), [], asyncio.Event()
    changed = asyncio.Event()

    def turned(found: Mapping[TopicPartition, int]) -> None:
        turns.append(sum(found.values()))
        changed.set()

    loop = Loop(log, handler, clock, max_open=10, on_turn=turned)
    task = asyncio.create_task(loop.run(stop, drain_s=1.0))
    async with asyncio.timeout(DEADLINE_S):
        while 3 not in turns:
            await changed.wait()
            changed.clear()
        handler.gate.set()
        while turns[-1]:
            await changed.wait()
            changed.clear()
    stop.set()
    await task


class Broken(MemoryLog):
    """A log whose readers are thrown off once told to."""

    off = False

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        if self.off:
            raise TransientError("away")
        async for records in super().follow(topic, starts):
            yield records
            if self.off:
                raise TransientError("away")


async def test_a_view_is_not_current_between_a_disconnect_and_its_next_end(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_module, "RETRY_S", 0.001)
    log = Broken(clock)
    view: View[Playbook] = View(log, topics.PLAYBOOKS)
    assert not view.is_current
    task = asyncio.create_task(view.run())
    await view.wait_current(DEADLINE_S)
    assert view.is_current
    log.off = True
    await log.produce(Outgoing(topic=topics.PLAYBOOKS.name, key=b"k", value=None))
    await until(lambda: not view.is_current)
    log.off = False
    await until(lambda: view.is_current)
    task.cancel()


async def test_sessions_tell_why_they_begin_anew(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee.process.worker.session.RETRY_S", 0.0)
    troubles: list[Exception] = [TransientError("away"), FencedError("newer")]
    reasons: list[str] = []
    stop = asyncio.Event()

    async def session(_: asyncio.Event) -> None:
        if troubles:
            raise troubles.pop(0)
        stop.set()

    await run_sessions("publish", session, stop, clock, reasons.append)
    assert reasons == ["transient", "fenced"]


class Asked:
    """A broker that answers, or fails as told."""

    def __init__(self, *errors: CombeeError | None) -> None:
        self.errors = list(errors)

    async def __call__(self) -> None:
        if len(self.errors) > 1:
            error = self.errors.pop(0)
        else:
            (error,) = self.errors
        if error:
            raise error


AWAY = TransientError("connection refused")


def monitored(asked: Asked, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> outage.OutageMonitor:
    monkeypatch.setattr(outage, "ASK_S", 0.0)
    monkeypatch.setattr(outage, "ASK_AGAIN_S", 0.0)
    return outage.OutageMonitor(asked, clock, service="scan", where="kafka:9092")


async def test_a_worker_whose_broker_is_away_is_not_ready_and_says_why(
    health: Health, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(AWAY)
    watched = monitored(asked, clock, monkeypatch)
    health.outage = watched.outage
    running = asyncio.create_task(watched.run())
    await until(lambda: "refused" in (watched.outage() or ""))
    clock.advance(90)
    health._beat_at = clock.monotonic()
    health.turned()
    assert red(health) == ["broker"]
    says = next(one.says for one in health.conditions() if one.name == "broker")
    assert says == "waiting for Kafka at kafka:9092 for 90 s (connection refused)"
    asked.errors = [None]
    await watched.answers()
    assert red(health) == []
    running.cancel()


async def test_a_refusal_ends_a_worker_at_its_start_and_is_waited_for_later(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = ConfigurationError("wrong password")
    with pytest.raises(ConfigurationError):
        await monitored(Asked(AWAY, refused), clock, monkeypatch).run()
    asked = Asked(None, refused)
    later = monitored(asked, clock, monkeypatch)
    running = asyncio.create_task(later.run())
    await until(lambda: "wrong password" in (later.outage() or ""))
    asked.errors = [None]
    await later.answers()
    running.cancel()


async def test_a_session_begins_when_the_broker_is_back_and_a_stop_does_not_wait_for_it(
    clock: ManualClock,
) -> None:
    begun, stop = [], asyncio.Event()
    back = asyncio.Event()

    async def session(_: asyncio.Event) -> None:
        begun.append(back.is_set())
        stop.set()

    async def returned() -> None:
        await back.wait()

    running = asyncio.create_task(run_sessions("scan", session, stop, clock, log_answers=returned))
    await asyncio.sleep(0)
    back.set()
    await running
    assert begun == [True]
    stop, back = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(run_sessions("scan", session, stop, clock, log_answers=returned))
    await asyncio.sleep(0)
    stop.set()
    await running
    assert begun == [True]


def test_that_the_broker_is_away_is_said_once_a_minute_whoever_notices(clock: ManualClock) -> None:
    seldom, said = OutageRateLimit(clock), []

    def say(event: str, error: str) -> None:
        with suppress(structlog.DropEvent):
            said.append(seldom(None, "warning", {"event": event, "error": error})["error"])

    say(AWAY_EVENT, "first")
    say(AWAY_EVENT, "at once")
    clock.advance(REPEATED_S)
    say(AWAY_EVENT, "after a minute")
    say("version", "something else")
    say(BACK, "back")
    say(AWAY_EVENT, "away again")
    assert said == ["first", "after a minute", "something else", "back", "away again"]
