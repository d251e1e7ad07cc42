from collections.abc import Sequence

import pytest

from combee.core.methods.ace import aggregate_prompt
from combee.core.playbook import empty
from combee.experiments.baselines import BATCHED, UNBATCHED, Row, measure
from combee.experiments.baselines_approaches import Summariser, batches, top_k
from combee.experiments.baselines_prompts import read_summary, summarise_lines, summarise_reflections
from combee.experiments.data import family
from combee.experiments.virtual import run_virtual
from combee.ports import PoisonError
from combee.sim.aggregator import aggregate
from combee.sim.inprocess import SimulatedModel, as_request
from combee.sim.naive import reflections_on, task_traces
from combee.sim.reading import read
from combee.sim.respond import respond
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.reflection import Reflection

DATA = family(100, seed=1)
LEARNED = reflections_on(task_traces([(one.question, one.target) for one in DATA.train]))


def row(name: str, batch_size: int = 50) -> Row:
    approach = {**UNBATCHED, **BATCHED}[name]
    return run_virtual(measure(SimulatedModel(), DATA, LEARNED, approach, batch_size, simulated=True))


class Saying(SimulatedModel):
    """Answers every prompt with the same body, or fails."""

    def __init__(self, body: dict[str, object] | None) -> None:
        super().__init__()
        self._body = body

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        if self._body is None:
            error = PoisonError(f"unusable: {prompt.reply_name}, {priority}")
            error.usage = Usage(calls=2)
            raise error
        return Reply(body=self._body, usage=Usage(calls=1))


# ---- the simulated summariser


def test_a_summary_keeps_what_the_law_lets_an_aggregator_keep_of_the_same_reflections() -> None:
    batch = LEARNED[:40]
    asked = respond(as_request(summarise_reflections(batch)), 3)
    aggregated = aggregate(read(as_request(aggregate_prompt(empty("p"), batch))), 3)
    assert asked.role == "summariser"
    assert set(asked.reply["summary_lines"]) == {one["content"] for one in aggregated["operations"]}


def test_a_summary_of_summaries_reads_their_lines() -> None:
    lines = [one.key_insight for one in LEARNED[:2]]
    assert set(respond(as_request(summarise_lines(lines)), 0).reply["summary_lines"]) <= set(lines)
    assert '{"n": 1, "content": ' in summarise_lines(lines).user


# ---- approaches


def test_retrieval_gives_the_reflection_about_what_is_asked() -> None:
    learned = top_k(LEARNED, 1)
    for one in DATA.train[:10]:
        (entry,) = learned.given(one.question).entries
        asked = one.question.partition("What is the ")[2].rstrip("?")
        assert asked in entry.content
    assert len(top_k(LEARNED, 7).given(DATA.exam[0].question).entries) == 7


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ({"summary_lines": ["a", 1, None, " b\nc ", "", ["d"]]}, ("a", "b c")),
        ({"summary_lines": "a"}, ()),
        ({}, ()),
        ({"summary_lines": ["x" * 10_000_000]}, ("x" * 8_000,)),
        ({"summary_lines": ["\ud800"]}, ("?",)),
        ({"summary_lines": ["a"] * 5_000}, ("a",) * 2_000),
    ],
    ids=["mixed", "no list", "nothing", "long", "surrogate", "many"],
)
def test_a_summary_is_read_within_bounds(body: dict[str, object], lines: Sequence[str]) -> None:
    assert read_summary(body) == lines


async def test_an_unusable_summary_costs_its_calls_and_the_run_goes_on() -> None:
    asked = Summariser(Saying(None))
    assert await asked.flat(LEARNED[:4]) == ()
    assert await asked.rewritten(LEARNED[:4], ["old"]) == ("old",)
    assert await asked.tree(LEARNED[:4]) == ()
    assert asked.usage.calls == 2 + 2 + 4


async def test_a_tree_of_summaries_asks_once_per_group_and_once_on_top() -> None:
    asked = Summariser(Saying({"summary_lines": ["one"]}))
    assert await asked.tree(LEARNED[:50]) == ("one",)
    assert asked.usage.calls == 7 + 1


def test_batches_take_everything_in_order() -> None:
    cut = list(batches(LEARNED, 30))
    assert [len(one) for one in cut] == [30, 30, 30, 10]
    assert [one for batch in cut for one in batch] == list[Reflection](LEARNED)


# ---- the experiment


@pytest.mark.parametrize("name", [*UNBATCHED, *BATCHED])
def test_an_approach_is_measured_and_the_same_run_gives_the_same_row(name: str) -> None:
    first = row(name)
    assert first == row(name)
    assert (first.calls == 0) == (name in UNBATCHED)
    assert first.lessons >= first.accuracy * len(DATA.exam)


def test_without_learning_nothing_is_known_and_with_retrieval_nothing_is_lost() -> None:
    assert (row("no learning").accuracy, row("no learning").lessons) == (0, 0)
    retrieved = row("Top-5 retrieval")
    assert retrieved.lessons == len({one.key_insight for one in LEARNED})
    assert (retrieved.kept, retrieved.calls) == (100, 0)


def test_a_summary_that_is_rewritten_forgets_and_summaries_side_by_side_repeat_themselves() -> None:
    assert row("summary rewritten", 20).lessons < row("summaries side by side", 20).lessons
    assert row("summaries side by side", 20).kept > row("summaries side by side", 20).lessons
