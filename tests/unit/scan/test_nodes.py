"""Requests of a wave leave one after the other; a node waits for its version no longer than it may."""

import asyncio

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import TransientError
from combee.scan import handler
from combee.scan.handler import ScanHandler
from combee.scan.nodes import LOOPS_TO_SEND, Wave
from combee_schemas.plan import Plan
from support.clock import ManualClock
from support.models import ModelClient, ScriptedModel


async def test_a_request_is_sent_before_the_next_one_is_prepared() -> None:
    wave, order = Wave(), []

    async def send(number: int) -> None:
        order.append(f"prepare {number}")
        for _ in range(LOOPS_TO_SEND):
            await asyncio.sleep(0)
        order.append(f"sent {number}")

    async def group(number: int) -> None:
        await wave.turn()
        await asyncio.create_task(send(number))

    await asyncio.gather(*map(group, range(3)))
    assert order == [f"{what} {number}" for number in range(3) for what in ("prepare", "sent")]


async def test_a_group_that_is_cancelled_while_it_waits_holds_up_nobody() -> None:
    wave = Wave()
    await wave.turn()
    waiting = [asyncio.create_task(wave.turn()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    async with asyncio.timeout(5):
        await waiting[1]
        await wave.turn()


async def test_a_version_that_does_not_arrive_is_waited_for_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler, "ARRIVAL_S", 0.001)
    clock = ManualClock()
    scan = ScanHandler(MemoryLog(clock), ModelClient(ScriptedModel()), clock)
    plan = Plan(batch_id="b", playbook="a", sequence=1, widths=(1,), base_version=1, reflections=1)
    async with asyncio.timeout(5):
        with pytest.raises(TransientError, match="no version 1 of a yet"):
            await scan._base(plan)
