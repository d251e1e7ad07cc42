"""``price``: the simulated server's cache, the releases' curators, and the criteria."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from combee.adapters.ports import FatalError
from combee_experiments.arms.tails import Pace
from combee_experiments.price import experiment
from combee_experiments.price.report import (
    ACE,
    APART,
    COMBEE,
    GEPA,
    HEAD_START,
    IN_A_ROW,
    LEAST_LESSONS,
    NO_MISTAKES,
    ONE_COPY,
    ROLES,
)
from combee_experiments.price.server import CachingServer
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Verdict
from combee_experiments.running.setup import Setup
from combee_experiments.running.virtual_time import run_virtual
from combee_schemas.model import Prompt
from combee_sim.inprocess import SimulatedModel

SETUP = Setup(data=(), seeds=(0,), samples=80)
LONG = Prompt(system="Every rule counts. " * 1_000, user="u", reply_name="operations")


def measured(arm: str, **parameters: str | int) -> Numbers:
    where = {"model": NO_MISTAKES, "start": 2_000, "pause": IN_A_ROW, **parameters}
    return experiment.measure(SETUP, Cell.of(arm, 0, **where))


def test_a_prefix_is_cached_once_a_call_has_read_it_and_not_before() -> None:
    async def work() -> None:
        server = CachingServer(SimulatedModel(), Pace(in_per_s=1_000, out_per_s=1))
        first, second = await asyncio.gather(*(server.ask(replace(LONG, user=name)) for name in "ab"))
        assert first.usage.cached_tokens == second.usage.cached_tokens == 0
        third = await server.ask(replace(LONG, user="c"))
        assert third.usage.cached_tokens > 0.9 * third.usage.tokens_in
        await asyncio.sleep(3_600)
        assert (await server.ask(replace(LONG, user="d"))).usage.cached_tokens == 0

    run_virtual(work())


def test_all_curators_learn_the_stream_and_only_the_head_start_reads_the_playbook_once() -> None:
    ace, gepa, ours, first = (measured(arm) for arm in (ACE, GEPA, COMBEE, HEAD_START))
    there = ace["lessons_there"]
    assert there == ace["lessons"] == gepa["lessons"] == ours["lessons"] == first["lessons"]
    assert (ace["calls"], ace["all_cached"]) == (80, 0)
    assert ace["all_in"] > 80 * 2_000
    assert gepa["calls"] == 27
    assert gepa["all_out"] > 27 * 1_500
    assert ours["all_in"] == first["all_in"]
    assert first["group_cached"] > ours["group_cached"]
    assert sum(first[f"{role}_in"] for role in ROLES) == first["all_in"]


def test_after_an_hour_nothing_is_cached() -> None:
    row, apart = (measured(HEAD_START, pause=pause) for pause in (IN_A_ROW, APART))
    assert apart["all_cached"] < row["all_cached"]
    assert apart["batch_s"] < 60


def test_it_goes_through_the_stand_in_s_mistakes_by_itself() -> None:
    with pytest.raises(FatalError, match="leave out"):
        list(experiment.cells(replace(SETUP, law="lessons_only")))
    planned = list(experiment.cells(SETUP))
    assert len(set(planned)) == len(planned)


# ---- the criteria


def judged(changes: Mapping[tuple[str, str], Numbers]) -> dict[str, Verdict]:
    """Return the verdicts where Combee costs a twentieth but for what is changed, by arm and pause."""
    tokens = {f"{name}_{part}": 0.0 for name in ("all", *ROLES) for part in ("in", "cached", "out")}
    even = {**tokens, "lessons": 50, "lessons_there": 50, "calls": 1, "batch_s": 10.0}
    arms = {ACE: 200_000, COMBEE: 10_000, HEAD_START: 10_000, ONE_COPY: 10_000}
    cells = {
        Cell.of(arm, 0, model=NO_MISTAKES, start=2_000, pause=pause): {
            **even,
            "all_in": read,
            **changes.get((arm, pause), {}),
        }
        for arm, read in arms.items()
        for pause in ((IN_A_ROW,) if arm == ACE else (IN_A_ROW, APART))
    }
    found = experiment.report(SETUP, Measured(cells)).verdicts
    return {verdict.criterion: verdict for verdict in found}


def missed(changes: Mapping[tuple[str, str], Numbers]) -> list[str]:
    return [criterion for criterion, verdict in judged(changes).items() if not verdict.met]


def test_at_a_twentieth_of_ace_s_price_all_criteria_are_met() -> None:
    assert missed({}) == []


@pytest.mark.parametrize(
    ("numbers", "criterion"),
    [
        ({"all_in": 10_100}, "an hour apart: at most 0.05"),
        ({"all_out": 100}, "an hour apart: at most 0.05"),
        ({"batch_s": 10.6}, "head start takes at most 5%"),
    ],
)
def test_one_place_in_which_a_criterion_fails_is_enough(numbers: Numbers, criterion: str) -> None:
    (only,) = missed({(HEAD_START, APART): numbers})
    assert criterion in only


def test_cached_tokens_count_a_tenth() -> None:
    assert missed({(COMBEE, APART): {"all_in": 55_000, "all_cached": 50_000}}) == []
    assert len(missed({(COMBEE, APART): {"all_in": 55_000, "all_cached": 49_000}})) == 1


def test_lessons_lost_are_a_criterion_of_their_own() -> None:
    few = {"lessons": 50 * LEAST_LESSONS - 1, "all_in": 1_000}
    (only,) = missed({(ONE_COPY, IN_A_ROW): few})
    assert "of the lessons" in only
