"""A wall clock that jumps decides nothing: windows close on counts and on monotonic time, versions only rise."""

import pytest

from support import ledger
from support.deployment import Deployment, answered_again
from support.faults.checker import violations
from support.ledger import outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")
HOUR_S = 3600.0
MAX_WAIT_S = 20.0


async def publish(deployment: Deployment, first: int, end: int) -> None:
    await deployment.log.produce(*(outgoing(reflection(number)) for number in range(first, end)))


async def judged(deployment: Deployment) -> list[str]:
    await deployment.until(lambda: not ledger.behind(deployment.log))
    return await violations(deployment.log, acked={})


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
async def test_step_of_the_clock_closes_no_window_and_holds_none_back(step_s: float) -> None:
    deployment = Deployment(batch_size=10, max_wait_s=MAX_WAIT_S)
    async with deployment.running():
        await publish(deployment, 0, 12)
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
        deployment.clock.step_wall(step_s)
        await publish(deployment, 12, 14)
        deployment.advance(MAX_WAIT_S / 2)
        await deployment.until(lambda: waiting(deployment) == 4)
        assert len(ledger.batches(deployment.log)) == 1, "the step closed a window"
        deployment.advance(MAX_WAIT_S)
        await deployment.until(lambda: ledger.applied(deployment.log) == 14)
        assert await judged(deployment) == []

    assert [one.version for one in ledger.versions(deployment.log)] == [1, 2]


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
async def test_step_of_the_clock_across_a_restart_loses_nothing(step_s: float) -> None:
    deployment = Deployment(batch_size=10, fan_in=2, max_wait_s=MAX_WAIT_S)
    await publish(deployment, 0, 25)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
    deployment.clock.step_wall(step_s)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) >= 20)
        deployment.advance(2 * MAX_WAIT_S)
        await deployment.until(lambda: ledger.applied(deployment.log) == 25)
        assert await judged(deployment) == []

    assert [one.version for one in ledger.versions(deployment.log)] == [1, 2, 3]


async def test_worker_whose_clock_is_behind_the_others_repeats_no_call() -> None:
    deployment = Deployment(batch_size=10, fan_in=2, max_wait_s=MAX_WAIT_S)
    await publish(deployment, 0, 10)
    async with deployment.running(["shuffle"]):
        await deployment.until(lambda: bool(ledger.batches(deployment.log)))
    deployment.clock.step_wall(-30.0)
    await answered_again(deployment)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 10)
        await deployment.until(lambda: not ledger.behind(deployment.log))

    assert deployment.model.most_repeats == 1


def waiting(deployment: Deployment) -> int:
    states = deployment.shuffler._states.values() if deployment.shuffler else ()
    return sum(len(window.waiting) for state in states for window in state.windows.values())
