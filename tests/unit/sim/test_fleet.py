import asyncio
from itertools import islice
from random import Random

import pytest

from combee.adapters.ports import DrainingError, PoisonError
from combee.core.methods.ace import answer_prompt
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.trace import Trace
from combee_sim.family.family import lessons, one_each, questions
from combee_sim.fleet import Progress, measure, run_fleet
from combee_sim.inprocess import SimulatedModel


def rng(seed: int) -> Random:
    return Random(seed)


EXAM = one_each(rng(11))


def playbook_with(contents: tuple[str, ...]) -> Playbook:
    entries = tuple(
        Entry(id=f"calc-{n:05d}", section="FORMULAS & CALCULATIONS", content=content)
        for n, content in enumerate(contents, 1)
    )
    return empty("p").model_copy(update={"version": 3, "entries": entries})


async def fleet_of(
    traces: list[Trace], playbook: Playbook | None, *, agents: int = 20, count: int = 60
) -> str:
    async def publish(trace: Trace) -> None:
        await asyncio.sleep(0)
        traces.append(trace)

    accuracy = await run_fleet(
        SimulatedModel(),
        islice(questions(rng(1)), count),
        name="p",
        playbook=lambda: playbook,
        publish=publish,
        agents=agents,
        seed=4,
    )
    return str(accuracy)


@pytest.mark.parametrize("known", [0, 1, 30, 64])
async def test_an_agent_is_right_exactly_where_the_playbook_holds_the_lesson(known: int) -> None:
    playbook = playbook_with(lessons()[:known])
    accuracy = await measure(SimulatedModel(), playbook, EXAM)
    assert (accuracy.right, accuracy.asked) == (known, len(EXAM))


async def test_an_agent_without_a_playbook_is_always_wrong() -> None:
    assert (await measure(SimulatedModel(), None, EXAM)).share == 0.0


async def test_an_agent_believes_a_wrong_lesson() -> None:
    right = lessons()[0]
    playbook = playbook_with((right.replace("one minus ", ""),))
    reply = await SimulatedModel().ask(answer_prompt(playbook, EXAM[0].text))
    assert reply.body["bullet_ids"] == ["calc-00001"]
    assert reply.body["final_answer"] != EXAM[0].target


async def test_a_fleet_leaves_one_trace_a_question_under_ids_that_a_repeat_gives_again() -> None:
    first: list[Trace] = []
    second: list[Trace] = []
    await fleet_of(first, None)
    await fleet_of(second, None, agents=3)
    assert len({trace.trace_id for trace in first}) == 60
    assert {t.trace_id: t.task for t in first} == {t.trace_id: t.task for t in second}


async def test_a_trace_says_what_was_shown_and_what_was_wanted() -> None:
    traces: list[Trace] = []
    playbook = playbook_with(lessons()[:2])
    await fleet_of(traces, playbook, count=1)
    shown = traces[0].shown
    assert shown is not None
    assert (shown.version, shown.entry_ids) == (3, ("calc-00001", "calc-00002"))
    assert traces[0].target
    assert traces[0].playbook == "p"


async def test_results_never_go_without_the_word_simulated() -> None:
    traces: list[Trace] = []
    assert "simulated" in await fleet_of(traces, None, count=1)
    assert "simulated" in traces[0].agent
    assert traces[0].metadata == {"origin": "simulated"}


class Crowd(SimulatedModel):
    """Answers only once all its agents have asked."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._all_here = asyncio.Barrier(size)

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        async with asyncio.timeout(5):
            await self._all_here.wait()
        return await super().ask(prompt, priority=priority)


async def test_the_agents_of_a_fleet_ask_at_the_same_time() -> None:
    seen: list[Progress] = []

    async def publish(trace: Trace) -> None:
        assert trace.answer

    accuracy = await run_fleet(
        Crowd(25),
        islice(questions(rng(1)), 50),
        name="p",
        playbook=lambda: None,
        publish=publish,
        agents=25,
        on_progress=seen.append,
    )
    assert accuracy.asked == 50
    assert [progress.asked for progress in seen] == list(range(1, 51))


class Mute(SimulatedModel):
    """Never gives a usable reply."""

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        raise PoisonError(f"nothing usable for {prompt.reply_name} at {priority}")


async def test_a_run_without_a_usable_reply_is_a_wrong_run_and_the_fleet_goes_on() -> None:
    traces: list[Trace] = []

    async def publish(trace: Trace) -> None:
        traces.append(trace)

    accuracy = await run_fleet(Mute(), EXAM[:30], name="p", playbook=lambda: None, publish=publish, agents=20)
    assert (accuracy.right, accuracy.asked) == (0, 30)
    assert {trace.answer for trace in traces} == {""}


async def test_a_draining_model_takes_no_further_call() -> None:
    model = SimulatedModel()
    model.drain()
    with pytest.raises(DrainingError):
        await model.ask(answer_prompt(empty("p"), EXAM[0].text))
    await model.close()
