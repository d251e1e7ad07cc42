"""``arrivals``: windows under the controller in virtual time, and when a policy counts as no worse."""

import pytest

from combee_experiments.arrivals import experiment as arrivals
from combee_experiments.arrivals.report import FIXED, LATE_S, report_on
from combee_experiments.data.samples import family
from combee_experiments.running.cells import Cell, Measured
from combee_experiments.running.setup import Setup

SETUP = Setup(data=(family(60, quantities=12),), seeds=(0,))
RATE = 1_000


def test_under_keep_up_no_free_window_waits_longer_than_the_longest_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Larger sizes than fill within the wait are tried, and after the last reflection nothing fills a window.
    monkeypatch.setattr(arrivals, "RATES", {RATE: 90})
    cell = Cell.of("keep-up", 0, data=SETUP.data[0].name, per_hour=RATE)
    found = arrivals.measure(SETUP, cell)
    assert found["waited_most_s"] <= arrivals.MAX_WAIT_S + LATE_S
    assert found["waited_most_s"] > arrivals.MAX_WAIT_S - LATE_S
    assert found["last_size"] != arrivals.START


def judged(stale_s: tuple[float, float], lessons: tuple[float, float], waited_s: float = 31.0) -> bool:
    """Return the verdict on a policy beside a fixed size that is 10 s stale and keeps 50 lessons, on two seeds."""
    cells = {}
    for seed in (0, 1):
        theirs = {"stale_s": 10.0, "lessons": 50, "waited_most_s": 31.0}
        ours = {"stale_s": stale_s[seed], "lessons": lessons[seed], "waited_most_s": waited_s}
        rest = dict.fromkeys(("stale_p95_s", "batches", "size", "last_size", "calls", "tokens_in"), 1.0)
        cells[Cell.of(FIXED, seed, data="d", per_hour=RATE)] = rest | theirs
        cells[Cell.of("keep-up", seed, data="d", per_hour=RATE)] = rest | ours
    (verdict,) = report_on("d", Measured(cells), 30.0).verdicts
    return verdict.met


def test_no_worse_means_all_of_the_interval_and_not_that_chance_might_explain_it() -> None:
    even = (50.0, 50.0)
    assert judged((10.2, 10.4), even)
    assert not judged((9.0, 10.6), even)
    assert judged((10.0, 10.0), (49.0, 50.0))
    assert not judged((10.0, 10.0), (48.0, 52.0))
    assert not judged((10.0, 10.0), even, waited_s=32.5)
