"""A pause on real Kafka: kill -9 of all services while it lasts, others learn on, and resume loses nothing."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import Tracker
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import Playbook
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.faults.kills import SERVICES
from support.running import PLAYBOOK, Running, nothing_waits, running_stack, traces

OTHER = "tests/other"
WITHIN_S = 60.0


async def until(tracker: Tracker, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await tracker.change()


def applied(tracker: Tracker) -> int:
    return sum(map(tracker.is_applied, tracker.batch_of))


async def killed(running: Running) -> None:
    for service in SERVICES:
        running.supervisor.send(service, signal.SIGKILL)
    await running.supervisor.restarted(SERVICES, timeout_s=30)


async def carried_out(commands: Commands, verb: str) -> Playbook:
    prepared = await (commands.pause(PLAYBOOK) if verb == "pause" else commands.resume(PLAYBOOK))
    assert prepared.command is not None
    made = await commands.carried_out(prepared.command, WITHIN_S)
    assert isinstance(made, Playbook)
    return made


@pytest.mark.timeout(240)
async def test_kills_while_a_playbook_is_paused_lose_nothing_and_hold_up_no_other(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async with running_stack(kafka.bootstrap_servers, topic_prefix, tmp_path, batch_size=10) as running:
        log, clock = running.log, SystemClock()
        commands = Commands(log, LogStore(log), clock, issued_by="user:me")
        async with (
            Tracker(log, PLAYBOOK, clock).running() as paused,
            Tracker(log, OTHER, clock).running() as other,
        ):
            first = [*traces(10, 1).values(), *traces(10, 2, OTHER).values()]
            await log.produce(*map(outgoing, first))
            await until(paused, lambda: applied(paused) == 10)
            order = (await carried_out(commands, "pause")).paused
            assert order is not None
            assert order.by_retention
            assert 0 < order.until_ms - clock.now_ms() <= 6 * DAY_MS
            held = [*traces(40, 3).values(), *traces(10, 4, OTHER).values()]
            await log.produce(*map(outgoing, held))
            await until(other, lambda: applied(other) == 20)
            await killed(running)
            await log.produce(*map(outgoing, traces(10, 5, OTHER).values()))
            await until(other, lambda: applied(other) == 30)
            assert len(paused.reflections) == 10, "a pause costs nothing"
            assert (await carried_out(commands, "resume")).paused is None
            await until(paused, lambda: len(paused.reflections) >= 12)
            await killed(running)
            await until(paused, lambda: applied(paused) == 50)
        await nothing_waits(log, WITHIN_S)
        ledger = await audit(log)
        assert ledger.violations == ()
        assert (ledger.reflections, ledger.applied, ledger.lost, ledger.double) == (80, 80, 0, 0)
        # Only an answer that was on its way into the log at a kill may be asked for again.
        assert running.repeated_answers() <= 2 * 2 * running.settings.model.llm_concurrency
