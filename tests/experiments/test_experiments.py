"""The framework: cells, their store, runs that go on where they stopped, results."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from combee.adapters.ports import FatalError
from combee.process.settings.model import ModelSettings
from combee_experiments.data.samples import family
from combee_experiments.running import plot, results
from combee_experiments.running import setup as circumstances
from combee_experiments.running.cells import Cell, Measured, Numbers, Spread
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict
from combee_experiments.running.run import Progress, run
from combee_experiments.running.setup import Setup, parse_seeds, summary
from combee_experiments.running.store import Store
from combee_sim.modes import parse_modes
from combee_sim.server.latency import Latency

SETUP = Setup(data=(family(10),), seeds=(0, 1))


class Squares:
    """An experiment whose every cell is its seed squared; it may fail at one."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.measured = list[int]()
        self._fails_at = fails_at

    def cells(self, setup: Setup) -> Iterator[Cell]:
        return (Cell.of("square", seed, data=setup.data[0].name) for seed in setup.seeds)

    def measure(self, setup: Setup, cell: Cell) -> Numbers:
        if cell.seed == self._fails_at:
            raise KeyboardInterrupt
        self.measured.append(cell.seed)
        assert setup.simulated
        return {"square": cell.seed**2}

    def report(self, setup: Setup, measured: Measured) -> Report:
        spread = measured.spread("square")
        table = Table(
            title="squares", columns=("seeds", "square"), rows=((str(len(setup.seeds)), spread.told()),)
        )
        series = Series(name="square", points=((1.0, spread), (2.0, spread)))
        return Report(
            tables=(table,),
            verdicts=(Verdict(criterion="small", met=spread.high < 100, told=spread.told()),),
            panels=(Panel(title="squares", x="n", y="square", series=(series,), log_x=True),),
        )


def seeds(count: int) -> Setup:
    return replace(SETUP, seeds=tuple(range(count)))


# ---- going on


def test_a_second_run_measures_nothing_and_reports_the_same(tmp_path: Path) -> None:
    first, second = Squares(), Squares()
    reported = run(first, seeds(3), Store(tmp_path / "cells.jsonl"))
    assert run(second, seeds(3), Store(tmp_path / "cells.jsonl")) == reported
    assert (first.measured, second.measured) == ([0, 1, 2], [])


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Squares(fails_at=2), seeds(4), Store(tmp_path / "cells.jsonl"))
    rest = Squares()
    measured, _ = run(rest, seeds(4), Store(tmp_path / "cells.jsonl"))
    assert rest.measured == [2, 3]
    assert measured.by_seed("square") == {0: 0, 1: 1, 2: 4, 3: 9}


def test_cells_are_reported_in_the_order_of_the_plan_whichever_were_there(tmp_path: Path) -> None:
    run(Squares(), replace(SETUP, seeds=(3, 1)), Store(tmp_path / "cells.jsonl"))
    measured, _ = run(Squares(), seeds(4), Store(tmp_path / "cells.jsonl"))
    assert list(measured.by_seed("square")) == [0, 1, 2, 3]


def test_fresh_measures_everything_again(tmp_path: Path) -> None:
    run(Squares(), seeds(2), Store(tmp_path / "cells.jsonl"))
    again = Squares()
    run(again, seeds(2), Store(tmp_path / "cells.jsonl", fresh=True))
    assert again.measured == [0, 1]


def test_progress_counts_what_was_there_already(tmp_path: Path) -> None:
    run(Squares(), seeds(1), Store(tmp_path / "cells.jsonl"))
    moved = list[Progress]()
    run(Squares(), seeds(2), Store(tmp_path / "cells.jsonl"), moved.append)
    assert [(one.done, one.total) for one in moved] == [(1, 2), (2, 2)]
    assert moved[0].next == "square (data task family), seed 1"
    assert moved[1].next == ""


@pytest.mark.parametrize(
    "other",
    [
        replace(SETUP, model=ModelSettings(model="a-real-one")),
        replace(SETUP, latency=Latency(median_s=2.0)),
        replace(SETUP, concurrency=7),
        replace(SETUP, data=(family(10, seed=1),)),
        replace(SETUP, law="lessons_only"),
        replace(SETUP, modes=parse_modes(["paraphrase"])),
        replace(SETUP, modes=parse_modes(["paraphrase=0.5"])),
    ],
    ids=["model", "latency", "concurrency", "data", "law", "mode", "rate of a mode"],
)
def test_numbers_of_other_circumstances_are_not_found(tmp_path: Path, other: Setup) -> None:
    cell = Cell.of("square", 0, data="task family")
    store = Store(tmp_path / "cells.jsonl")
    store.add(SETUP.identity(cell), {"square": 0})
    again = Store(tmp_path / "cells.jsonl")
    assert again.find(SETUP.identity(cell)) == {"square": 0}
    assert again.find(other.identity(cell)) is None


def test_numbers_of_other_code_are_not_found(tmp_path: Path) -> None:
    identity = SETUP.identity(Cell.of("square", 0))
    store = Store(tmp_path / "cells.jsonl")
    store.add(identity | {"code": "older"}, {"square": 1})
    assert store.find(identity) is None


def test_numbers_of_another_stand_in_are_not_found() -> None:
    assert any("combee_sim" in path.parts for path in circumstances._sources())


def test_data_that_a_cell_does_not_use_do_not_count() -> None:
    cell = Cell.of("tree", 0, reflections=40)
    assert SETUP.identity(cell) == replace(SETUP, data=(family(20),)).identity(cell)


def test_a_line_torn_by_a_kill_is_measured_again_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    run(Squares(), seeds(2), Store(path))
    path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    rest = Squares()
    run(rest, seeds(3), Store(path))
    assert rest.measured == [1, 2]
    nothing = Squares()
    run(nothing, seeds(3), Store(path))
    assert nothing.measured == []


# ---- values


def test_measured_cells_are_chosen_by_arm_and_parameters() -> None:
    cells = {
        Cell.of(arm, seed, size=size): {"n": size + seed}
        for arm in "ab"
        for size in (1, 5)
        for seed in (0, 1)
    }
    measured = Measured(cells)
    assert measured.where("a", size=5).by_seed("n") == {0: 5, 1: 6}
    assert measured.arms() == ("a", "b")
    assert measured.values("size") == (1, 5)
    assert not measured.where("c")


@pytest.mark.parametrize(("text", "wanted"), [("3", (0, 1, 2)), ("2-4", (2, 3, 4)), ("1,3,3", (1, 3))])
def test_seeds_are_a_count_a_range_or_a_list(text: str, wanted: tuple[int, ...]) -> None:
    assert parse_seeds(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "-2", "4-2", "x", "1,", "1-x", "2-", "1.5"])
def test_what_are_no_seeds_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match="expected 0-4, or 1,3,5, or how many"):
        parse_seeds(text)


# ---- results


def test_a_result_says_that_it_is_simulated_wherever_it_is_read(tmp_path: Path) -> None:
    measured, report = run(Squares(), SETUP, Store(tmp_path / "cells.jsonl"))
    files = results.write(tmp_path / "squares", "squares", SETUP, measured, report, plot=False)
    assert [one.name for one in files] == ["result.json", "table.md", "tables"]
    document = json.loads(files[0].read_text(encoding="utf-8"))
    assert document["simulated"] is True
    assert document["verdicts"][0]["verdict"] == "met"
    assert document["cells"][1] == {
        "arm": "square",
        "parameters": {"data": "task family"},
        "seed": 1,
        "numbers": {"square": 1},
    }
    text = files[1].read_text(encoding="utf-8")
    assert "**Simulated**: the stand-in model answers" in text
    assert "Counting rule" not in text
    assert "Modes" not in text
    assert "- **met**: small: 0.5 (0.0–1.0)" in text
    assert "| 2 | 0.5 (0.0–1.0) |" in text
    assert {one.name: one.read_text(encoding="utf-8") for one in files[2].iterdir()} == {
        "1-squares.csv": "seeds,square\n2,0.5 (0.0–1.0)\n",
        "criteria.csv": "criterion,verdict,figures\nsmall,met,0.5 (0.0–1.0)\n",
    }


def test_a_result_says_how_the_stand_in_was_made_to_fail() -> None:
    setup = replace(SETUP, law="lessons_only", modes=parse_modes(["paraphrase", "invented=1"]))
    told = results.circumstances(setup)
    assert "Counting rule: lessons_only. Modes: paraphrase=0.8, invented=1." in told
    assert summary(setup)["modes"] == ["paraphrase=0.8", "invented=1"]


def test_a_real_model_is_named_instead() -> None:
    setup = replace(SETUP, model=ModelSettings(model="openai/some-model"))
    told_of = results.circumstances(setup)
    assert "Model openai/some-model, real" in told_of
    assert "imulated" not in told_of


def test_the_same_numbers_make_the_same_files(tmp_path: Path) -> None:
    measured, report = run(Squares(), SETUP, Store(tmp_path / "cells.jsonl"))
    for name in "ab":
        results.write(tmp_path / name, "squares", SETUP, measured, report, plot=True)
    once, again = (
        {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.*")}
        for name in "ab"
    )
    assert once == again
    assert once["plot.png"].startswith(b"\x89PNG")
    assert "tables/1-squares.csv" in once


def test_a_mean_that_is_off_by_a_rounding_is_drawn(tmp_path: Path) -> None:
    spread = Spread(values=(0.1,) * 3)
    assert spread.mean != spread.low
    series = Series(name="same", points=((1.0, spread),))
    plot.draw((Panel(title="t", x="x", y="y", series=(series,)),), "t", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(FatalError, match=r"combee\[experiments\]"):
        plot.require()
