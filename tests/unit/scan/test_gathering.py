"""Requests of a wave leave one after the other; a node waits for its version no longer than it may."""

import asyncio

from combee.scan.gathering import LOOPS_TO_SEND, Arrivals, Wave


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


async def test_a_version_that_does_not_arrive_is_waited_for_no_longer() -> None:
    arrivals = Arrivals()
    arrivals.arrived("another")
    async with asyncio.timeout(5):
        await arrivals.wait("a", lambda: False, 0.001)
