"""``baselines``: Top-K, Summarization, retrieval, summaries and Combee on the same reflections."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.adapters.ports import PoisonError
from combee.core.methods.ace import aggregate_prompt
from combee.core.playbook.versions import empty
from combee_experiments.arms.arms import ADAPTIVE
from combee_experiments.baselines import experiment as baselines
from combee_experiments.baselines.approaches import (
    Summariser,
    read_summary,
    retrieval,
    summarise_lines,
    summarise_reflections,
)
from combee_experiments.baselines.condensed import medoids, representatives, summarization, top_k
from combee_experiments.baselines.experiment import BATCHED, UNBATCHED
from combee_experiments.baselines.report import ALL, NO_LEARNING, SUMMARIZATION, TOP_K
from combee_experiments.data.samples import family
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, Verdict
from combee_experiments.running.setup import Setup
from combee_experiments.running.virtual_time import run_virtual
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_sim.family.lessons import key
from combee_sim.inprocess import SimulatedModel, as_request
from combee_sim.law.samples import reflections_on, task_traces
from combee_sim.roles.aggregator import aggregate
from combee_sim.roles.reading import read
from combee_sim.roles.respond import respond

DATA = family(60, seed=1)
SETUP = Setup(data=(DATA,), seeds=(0,))
LEARNED = reflections_on(task_traces([(one.question, one.target) for one in DATA.train]))


def measured(name: str, batch_size: int = 20) -> Numbers:
    size = ALL if name in UNBATCHED else batch_size
    return baselines.measure(SETUP, Cell.of(name, 0, data=DATA.name, batch_size=size))


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
    batch = LEARNED[:30]
    asked = respond(as_request(summarise_reflections(batch)), 3)
    aggregated = aggregate(read(as_request(aggregate_prompt(empty("p"), batch))), 3)
    assert asked.role == "summariser"
    kept = (batch[int(one["content"].removeprefix("as item ")) - 1] for one in aggregated["operations"])
    assert set(asked.reply["summary_lines"]) == {one.key_insight for one in kept}


def test_a_summary_of_summaries_reads_their_lines() -> None:
    lines = [one.key_insight for one in LEARNED[:2]]
    assert set(respond(as_request(summarise_lines(lines)), 0).reply["summary_lines"]) <= set(lines)
    assert '{"n": 1, "content": ' in summarise_lines(lines).user


# ---- approaches


def test_retrieval_gives_the_reflection_about_what_is_asked() -> None:
    learned = retrieval(LEARNED, 1)
    for one in DATA.train[:10]:
        entries = learned.given(one.question).entries
        asked = one.question.partition("What is the ")[2].rstrip("?")
        assert any(asked in entry.content for entry in entries)
    lines = [one.reasoning for one in LEARNED]
    read = [entry.content for entry in retrieval(LEARNED, 7).given(DATA.exam[0].question).entries]
    assert sum(text in lines for text in read) == 7


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ({"summary_lines": ["a", 1, None, " b\nc ", "", ["d"]]}, ("a", "b c")),
        ({"summary_lines": "a"}, ()),
        ({}, ()),
        ({"summary_lines": ["x" * 2_000_000]}, ("x" * 8_000,)),
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
    assert await asked.tree(LEARNED[:36]) == ("one",)
    assert asked.usage.calls == 6 + 1


class Choosing(SimulatedModel):
    """The stand-in, with every prompt on record."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[Prompt] = []

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        self.prompts.append(prompt)
        return await super().ask(prompt, priority=priority)

    def items(self, name: str) -> list[int]:
        """Return how many items each prompt for such a reply holds."""
        texts = [prompt.user for prompt in self.prompts if prompt.reply_name == name]
        return [text.count("\nitem ") + text.count('{"n": ') for text in texts]


def test_top_k_aggregates_k_reflections_of_each_batch_in_one_call() -> None:
    model = Choosing()
    learned = run_virtual(top_k(model, LEARNED, 20, k=5))
    assert (model.items("operations"), model.items("summary")) == ([5, 5, 5], [])
    assert learned.usage.calls == 3
    assert 0 < len(learned.kept) <= 15


def test_summarization_aggregates_a_summary_of_each_batch_and_nothing_else() -> None:
    model = Choosing()
    learned = run_virtual(summarization(model, LEARNED, 20))
    assert model.items("summary") == [20, 20, 20]
    read = model.items("operations")
    assert len(read) == 3
    assert all(0 < count < 20 for count in read)
    assert learned.usage.calls == 6
    lessons = {key(one.key_insight) for one in LEARNED}
    assert {key(text) for text in learned.kept} <= lessons


def test_a_batch_whose_summary_is_unusable_makes_no_version_and_its_calls_count() -> None:
    learned = run_virtual(summarization(Saying(None), LEARNED[:40], 20))
    assert (learned.kept, learned.usage.calls) == ((), 4)


def test_representatives_are_one_for_each_thing_said_before_any_is_said_twice() -> None:
    said = ("Lock the gate at night.", "Feed the fish in the pond.", "Count all bees by noon.")
    made = [LEARNED[0].model_copy(update={"key_insight": said[n % 3]}) for n in range(12)]
    for k in (3, 5, 12):
        assert sorted(one.key_insight for one in representatives(made, k)) == sorted(said)
    assert len(representatives(made, 2)) == 2
    assert representatives(LEARNED, 10) == representatives(LEARNED, 10)
    assert (representatives((), 3), representatives(made, 0)) == ((), ())


def test_the_centre_of_a_cluster_is_the_one_nearest_to_all_of_it() -> None:
    places = (0, 1, 2, 100, 101, 110)
    apart = [[float(abs(one - other)) for other in places] for one in places]
    assert medoids(apart, 2) == [1, 4]
    assert medoids(apart, 9) == [0, 1, 2, 3, 4, 5]


@given(st.lists(st.integers(0, 9), max_size=25), st.integers(0, 12))
def test_there_are_k_centres_or_as_many_as_are_different(places: list[int], k: int) -> None:
    apart = [[float(abs(one - other)) for other in places] for one in places]
    found = medoids(apart, k)
    assert len(found) == min(k, len(set(places)))
    assert len({places[one] for one in found}) == len(found)


# ---- the experiment


@pytest.mark.parametrize("name", [*UNBATCHED, *BATCHED])
def test_an_approach_gives_the_same_numbers_again_and_only_retrieval_costs_no_call(name: str) -> None:
    first = measured(name)
    assert first == measured(name)
    assert (first["calls"] == 0) == (name in UNBATCHED)
    assert first["lessons"] >= round(first["accuracy"] * len(DATA.exam))


def test_without_learning_nothing_is_known_and_with_retrieval_nothing_is_lost() -> None:
    nothing, retrieved = measured("no learning"), measured("retrieval at inference, 5")
    assert (nothing["accuracy"], nothing["lessons"]) == (0, 0)
    assert retrieved["lessons"] == len({one.key_insight for one in LEARNED})
    assert (retrieved["stored"], retrieved["calls"]) == (60, 0)
    assert retrieved["prompt_tokens"] > measured("retrieval at inference, 1")["prompt_tokens"]


# ---- the report


def reported(accuracy: dict[str, float]) -> Report:
    """Return the report where every approach is right half the time, except these."""
    counts = dict.fromkeys(("lessons", "calls", "tokens_in", "tokens_out", "stored", "prompt_tokens"), 1.0)
    cells = {
        cell: {**counts, "accuracy": accuracy.get(cell.arm, 0.5)}
        for cell in baselines.cells(Setup(data=(family(100),), seeds=(0,)))
    }
    return baselines.report(SETUP, Measured(cells))


def best_of(accuracy: dict[str, float]) -> list[Verdict]:
    return [one for one in reported(accuracy).verdicts if "every other approach" in one.criterion]


@pytest.mark.parametrize(
    ("better", "met"),
    [({}, True), ({NO_LEARNING: 0.2}, False), ({SUMMARIZATION: 0.3}, False), ({TOP_K[5]: 0.4}, False)],
    ids=["the paper's", "learning nothing is as good", "Top-K is no better", "Combee is no better"],
)
def test_the_order_of_the_paper_s_figure_is_a_criterion_and_a_tie_misses_it(
    better: dict[str, float], *, met: bool
) -> None:
    papers = {NO_LEARNING: 0.1, SUMMARIZATION: 0.2, TOP_K[5]: 0.2, TOP_K[10]: 0.3, "Combee, plain": 0.4}
    order = [one for one in reported(papers | better).verdicts if "Figure 4" in one.criterion]
    assert [one.met for one in order] == [met, met]


def test_one_approach_that_makes_agents_better_is_named_as_the_reason() -> None:
    for verdict in best_of({"retrieval at inference, 20": 0.7, ADAPTIVE.name: 0.6}):
        assert not verdict.met
        assert verdict.told == "0.600; the best other, retrieval at inference, 20: 0.700"
