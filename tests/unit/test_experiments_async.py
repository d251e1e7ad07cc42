import asyncio
from collections.abc import Sequence

import pytest

from combee.experiments.asynchronous import MODES, TIMES, Load, Mode, Run, Times, simulate
from combee.experiments.services import batch_settings, learn
from combee.experiments.tails import Pace, Pareto, SlowModel
from combee.experiments.virtual import LoopClock, NothingLeftError, run_virtual
from combee.sim.inprocess import SimulatedModel
from combee.sim.latency import Latency
from combee.sim.naive import reflections_on, task_traces
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.reflection import Reflection

FIXED, PARETO = TIMES[0], TIMES[-1]
SYNCHRONOUS, ONE, TWO = MODES[:3]
PROMPT = Prompt(system="s", user="u", reply_name="n", reply_schema={})


def reflections(count: int) -> Sequence[Reflection]:
    rows = [
        (f"Use formula F{n} to answer. Formula: F{n} = {n} / x, Explanation: x", "1.0") for n in range(count)
    ]
    return reflections_on(task_traces(rows))


def run(mode: Mode, *, times: Times = FIXED, load: Load | None = None, count: int = 40) -> Run:
    wanted = load or Load(batch_size=10, agents=10)
    return simulate(SimulatedModel(), reflections(count), mode, times, wanted, seed=1)


# ---- virtual time


def test_an_hour_of_waiting_takes_no_time() -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3_600):
                await asyncio.Event().wait()
        return LoopClock().monotonic()

    assert run_virtual(wait()) == pytest.approx(3_600)


def test_timers_end_in_order_and_at_their_time() -> None:
    async def wait() -> list[tuple[int, float]]:
        ended: list[tuple[int, float]] = []

        async def one(seconds: int) -> None:
            await asyncio.sleep(seconds)
            ended.append((seconds, round(LoopClock().monotonic(), 6)))

        async with asyncio.TaskGroup() as group:
            for seconds in (30, 10, 20):
                group.create_task(one(seconds))
        return ended

    assert run_virtual(wait()) == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_a_stand_still_is_an_error_and_not_a_hang() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingLeftError):
        run_virtual(wait())


# ---- times


def test_half_of_pareto_times_are_below_the_median_and_the_slowest_of_a_hundred_takes_fourteen() -> None:
    tail = Pareto(median_s=2, shape=1.5)
    times = [tail.seconds(n / 1000) for n in range(1000)]
    assert sum(one < 2 for one in times) == 500
    assert tail.seconds(0.99) == pytest.approx(2 * 13.57, rel=0.01)


def test_a_slow_model_makes_few_calls_at_once_and_charges_for_tokens() -> None:
    async def ask() -> tuple[float, Usage]:
        pace = Pace(in_per_s=1, out_per_s=1)
        model = SlowModel(SimulatedModel(), Latency(median_s=1), seed=0, concurrency=2, pace=pace)
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(model.ask(PROMPT))
        return LoopClock().monotonic(), model.usage

    seconds, usage = run_virtual(ask())
    assert usage.calls == 4
    assert seconds == pytest.approx(2 * (1 + (usage.tokens_in + usage.tokens_out) / 4))


# ---- the services in one loop


def test_the_services_learn_every_lesson_and_flush_what_is_left_over() -> None:
    learnt = run_virtual(learn(SimulatedModel(), reflections(13), batch_settings(5)))
    assert (learnt.versions, learnt.playbook.reflections) == (3, 3)
    assert learnt.usage.calls == 3 + 3 + 1


def test_a_service_that_fails_ends_the_run_instead_of_hanging() -> None:
    class Broken(SimulatedModel):
        async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
            raise RuntimeError(f"broken: {prompt.reply_name}, {priority}")

    with pytest.raises(ExceptionGroup):
        run_virtual(learn(Broken(), reflections(5), batch_settings(5)))


# ---- the experiment


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_reflection_is_applied_once_and_the_same_run_gives_the_same_result(mode: Mode) -> None:
    first = run(mode, times=PARETO, count=20)
    assert first.applied == 20
    assert first == run(mode, times=PARETO, count=20)


def test_agents_that_wait_for_each_other_take_longer_and_see_every_version() -> None:
    waiting, streaming = run(SYNCHRONOUS, times=PARETO), run(ONE, times=PARETO)
    assert waiting.wall_s > streaming.wall_s
    assert (waiting.behind, waiting.stale) == (0, 0)
    assert streaming.behind > 0


def test_overlapping_batches_are_faster_where_aggregation_is_the_bottleneck_and_their_base_is_older() -> None:
    crowd = Load(batch_size=10, agents=40)
    one, two = run(ONE, load=crowd), run(TWO, load=crowd)
    assert two.wall_s < one.wall_s
    assert (one.stale_most, two.stale_most) == (0, 1)


def test_nine_in_ten_are_applied_before_the_slowest_agent_is_done() -> None:
    found = run(ONE, times=PARETO, load=Load(batch_size=4, agents=10))
    assert found.most_s < found.wall_s
