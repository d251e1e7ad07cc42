"""``baselines``: retrieval, summaries and Combee on the same reflections."""

from collections.abc import Sequence

import pytest

from combee.core.methods.ace import aggregate_prompt
from combee.core.playbook.versions import empty
from combee.ports import PoisonError
from combee.sim.inprocess import SimulatedModel, as_request
from combee.sim.law.naive import reflections_on, task_traces
from combee.sim.roles.aggregator import aggregate
from combee.sim.roles.reading import read
from combee.sim.roles.respond import respond
from combee_experiments.arms.arms import ADAPTIVE
from combee_experiments.baselines import experiment as baselines
from combee_experiments.baselines.approaches import (
    Summariser,
    batches,
    read_summary,
    summarise_lines,
    summarise_reflections,
    top_k,
)
from combee_experiments.baselines.experiment import BATCHED, UNBATCHED
from combee_experiments.baselines.report import ALL
from combee_experiments.data.samples import family
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.reflection import Reflection

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


def test_batches_take_everything_in_order() -> None:
    cut = list(batches(LEARNED, 25))
    assert [len(one) for one in cut] == [25, 25, 10]
    assert [one for batch in cut for one in batch] == list[Reflection](LEARNED)


# ---- the experiment


@pytest.mark.parametrize("name", [*UNBATCHED, *BATCHED])
def test_an_approach_gives_the_same_numbers_again_and_only_retrieval_costs_no_call(name: str) -> None:
    first = measured(name)
    assert first == measured(name)
    assert (first["calls"] == 0) == (name in UNBATCHED)
    assert first["lessons"] >= round(first["accuracy"] * len(DATA.exam))


def test_without_learning_nothing_is_known_and_with_retrieval_nothing_is_lost() -> None:
    nothing, retrieved = measured("no learning"), measured("Top-5 retrieval")
    assert (nothing["accuracy"], nothing["lessons"]) == (0, 0)
    assert retrieved["lessons"] == len({one.key_insight for one in LEARNED})
    assert (retrieved["stored"], retrieved["calls"]) == (60, 0)
    assert retrieved["prompt_tokens"] > measured("Top-1 retrieval")["prompt_tokens"]


def test_a_summary_that_is_rewritten_forgets_and_summaries_side_by_side_repeat_themselves() -> None:
    rewritten, beside = measured("summary, rewritten"), measured("summaries, side by side")
    assert rewritten["lessons"] < beside["lessons"] < beside["stored"]


# ---- the report


def reported(accuracy: dict[str, float]) -> Report:
    """Return the report where every approach is right half the time, except these."""
    counts = dict.fromkeys(("lessons", "calls", "tokens_in", "tokens_out", "stored", "prompt_tokens"), 1.0)
    cells = {
        cell: {**counts, "accuracy": accuracy.get(cell.arm, 0.5)}
        for cell in baselines.cells(Setup(data=(family(100),), seeds=(0,)))
    }
    return baselines.report(SETUP, Measured(cells))


def test_a_tie_is_no_defeat() -> None:
    assert [one.met for one in reported({}).verdicts] == [True, True]


def test_one_approach_that_makes_agents_better_is_named_as_the_reason() -> None:
    for verdict in reported({"Top-20 retrieval": 0.7, ADAPTIVE.name: 0.6}).verdicts:
        assert not verdict.met
        assert verdict.told == "0.600; the best other, Top-20 retrieval: 0.700"


def test_combees_other_arm_is_no_rival_to_it() -> None:
    assert all(one.met for one in reported({"Combee, plain": 0.9}).verdicts)


def test_the_papers_scores_stand_beside_and_its_lack_of_baselines_is_said() -> None:
    table = reported({}).tables[-1]
    assert ("AppWorld, ACE", "Combee", "40", "65.8", "6,887") in table.rows
    assert "no figures of retrieval or summaries" in table.note
