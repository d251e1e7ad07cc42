import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from combee.adapters.asking.limits import REMEMBERED, Limits, PrioritySlots, Shares
from support.waiting import until

pytestmark = pytest.mark.usefixtures("virtual_time")


def limits(requests: int | None = None, tokens: int | None = None) -> Limits:
    return Limits(concurrency=8, requests_per_minute=requests, tokens_per_minute=tokens)


async def use(slots: PrioritySlots, priority: int, note: Callable[[], object], owner: str = "") -> None:
    async with slots.hold(priority, owner):
        note()


async def passes(limit: Limits, tokens: int = 1) -> bool:
    try:
        async with asyncio.timeout(0.05), limit.hold(priority=0, tokens=tokens):
            return True
    except TimeoutError:
        return False


async def test_a_free_slot_goes_to_the_highest_priority_and_first_come_within_it() -> None:
    slots, order = PrioritySlots(1), list[str]()
    async with asyncio.TaskGroup() as tasks, slots.hold():
        for priority, name in ((0, "low"), (2, "high"), (1, "middle"), (2, "high, later")):
            tasks.create_task(use(slots, priority, partial(order.append, name)))
        await until(lambda: slots.waiting == 4)
    assert order == ["high", "high, later", "middle", "low"]


# ---- owners take turns


async def test_who_comes_after_a_backlog_waits_for_one_call_and_not_for_the_backlog() -> None:
    slots, order = PrioritySlots(2), list[str]()

    async def call(owner: str) -> None:
        async with slots.hold(0, owner):
            order.append(owner)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(20):
            tasks.create_task(call("backlog"))
        await until(lambda: slots.waiting == 18)
        for _ in range(2):
            tasks.create_task(call("late"))
    # Both of its calls go in the first round after the one that ran: it had none lately.
    assert order[:6] == ["backlog", "backlog", "late", "late", "backlog", "backlog"]


async def test_two_backlogs_take_turns_and_idle_time_is_not_saved_up() -> None:
    slots, order = PrioritySlots(1), list[str]()
    for _ in range(100):
        async with slots.hold(0, "busy before"):
            pass
    async with asyncio.TaskGroup() as tasks, slots.hold(0, "busy before"):
        for owner in ("busy before", "new"):
            for _ in range(6):
                tasks.create_task(use(slots, 0, partial(order.append, owner), owner))
        await until(lambda: slots.waiting == 12)
    assert order[:4].count("new") <= 3
    assert [order[:8].count(owner) for owner in ("busy before", "new")] == [3, 5]


def test_of_many_owners_only_those_who_had_turns_lately_are_remembered() -> None:
    shares = Shares(credit=8)
    for number in range(3 * REMEMBERED):
        shares.take(f"owner {number}")
        shares.take("all the time")
    assert len(shares._taken) <= REMEMBERED
    assert shares.of("all the time") > shares.of("owner 0")


async def test_no_more_than_the_slots_are_held_at_once() -> None:
    slots, held, most = PrioritySlots(3), 0, 0

    async def work() -> None:
        nonlocal held, most
        async with slots.hold():
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 3


async def test_a_cancelled_waiter_takes_no_slot_and_leaves_no_trace() -> None:
    slots = PrioritySlots(1)
    async with slots.hold():
        waiter = asyncio.create_task(use(slots, 0, lambda: None))
        await until(lambda: slots.waiting == 1)
        waiter.cancel()
        await asyncio.wait([waiter])
        assert slots.waiting == 0
        assert slots._free == 0
    assert await is_free(slots)


async def test_a_slot_handed_to_a_task_cancelled_in_the_same_moment_is_not_lost() -> None:
    slots = PrioritySlots(1)
    async with slots.hold():
        waiter = asyncio.create_task(use(slots, 0, lambda: None))
        await until(lambda: slots.waiting == 1)
    waiter.cancel()  # the slot is its own already, but it has not run since
    await asyncio.wait([waiter])
    assert waiter.cancelled()
    assert await is_free(slots)


async def test_a_slot_is_given_back_after_an_error() -> None:
    slots = PrioritySlots(1)
    with pytest.raises(ValueError, match="literal"):
        await use(slots, 0, partial(int, "x"))
    assert await is_free(slots)


def test_no_slots_at_all_would_hang_for_ever_and_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        PrioritySlots(0)


async def is_free(slots: PrioritySlots) -> bool:
    async with asyncio.timeout(1), slots.hold():
        return True


async def test_requests_per_minute_are_limited() -> None:
    limit = limits(requests=2)
    assert [await passes(limit) for _ in range(3)] == [True, True, False]


async def test_tokens_per_minute_are_limited() -> None:
    limit = limits(tokens=1000)
    assert [await passes(limit, 400) for _ in range(3)] == [True, True, False]


async def test_a_prompt_above_a_minutes_allowance_takes_the_whole_minute() -> None:
    limit = limits(tokens=1000)
    assert await passes(limit, 50_000)
    assert not await passes(limit, 100)


async def test_tokens_used_beyond_the_estimate_are_paid_by_the_next_call() -> None:
    limit = limits(tokens=1000)
    assert await passes(limit, 100)
    limit.settle(estimated=100, used=900)
    assert not await passes(limit, 200)


async def test_without_rates_only_the_slots_limit() -> None:
    limit = limits()
    assert all([await passes(limit, 10**9) for _ in range(50)])


async def test_a_large_prompt_is_not_overtaken_by_small_ones_of_its_priority() -> None:
    limit = limits(tokens=60_000)
    assert await passes(limit, 59_990)
    order: list[str] = []

    async def ask(name: str, tokens: int) -> None:
        async with limit.hold(priority=0, tokens=tokens):
            order.append(name)

    async with asyncio.timeout(2), asyncio.TaskGroup() as tasks:
        for name, tokens in (("large", 200), ("small", 50), ("small", 50)):
            tasks.create_task(ask(name, tokens))
    assert order[0] == "large"
