"""``canary``: simulated decisions about candidates whose worth is known, by the product's own fold and test.

The criteria, written before the first run, for margin 0.05, α = 5 % and at most 20,000 callers; *errors* are counted
over all seeds, and a rate may exceed α by two standard errors of itself at α:

1. A candidate that is worse by exactly the margin is accepted in at most α of the decisions, in every setting.
2. One that is no different is closed as worse in at most α of them, in every setting.
3. One that is no different is accepted in at least 80 % of them at 80 % success.
4. One that is worse by 0.2 at 80 % success is closed in at least 99 %, after at most 100 of its callers in the mean.
5. With equal arms, as the fixed test has them, 80 % of those that are no different are accepted within twice its
   791 runs per arm.
6. A candidate that is worse by the margin and says nothing of a third of its failures is accepted in at most α.

Beside it, reported and not judged: the fixed test when it is looked at after every 50 callers; the test that takes
runs for the unit; acceptance that unequal shares of unscored runs do not block; and callers with a proven source that
lie for the candidate, which no test of scores can tell from a better one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log, pi, sin, sqrt
from random import Random

from combee.core.gate.betting import Bets
from combee.core.gate.canary import HASHES, in_share
from combee.core.gate.canary_fold import MAX_CALLERS, Canary
from combee.core.gate.canary_verdict import canary_report
from combee_experiments.canary.report import (
    ALPHA,
    BY_RUN,
    CANARY,
    EFFECTS,
    EQUAL,
    FAR,
    FORGED,
    HEAVY,
    HIDDEN,
    MARGIN,
    PEEKED,
    PLAIN,
    SAME,
    UNBLOCKED,
    WRONG,
    report_on,
)
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_schemas.canary import CanaryTerms

OPEN, LATE = "open", "late"
LOOK = 50
"""Callers between two looks at the fixed test, or at what blocks."""
Z = 1.6448536269514722
"""One-sided, 5 %."""

Run = tuple[int, float | None]
"""A caller's hash, and the score; None: unscored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Who calls, and how well production does."""

    base: float = 0.8
    share: float = 0.1
    swing: float = 0.0
    """The base rate drifts up and down by so much, once in 2,000 runs."""
    spread: float = 0.0
    """Standard deviation of the callers' own rates."""
    heavy: bool = False
    """Callers have as many runs as a Pareto law (1.2) gives; else each has one."""
    hidden: float = 0.0
    """Of the candidate's failures: those that nobody is told the outcome of."""
    forging: float = 0.0
    """Of the callers: those whose source is proven and lies, full marks for the candidate and none for production."""
    decisions: int = 400
    """Per seed."""


SETTINGS: Mapping[str, Setting] = {
    PLAIN: Setting(),
    "50 %": Setting(base=0.5),
    "95 %": Setting(base=0.95),
    EQUAL: Setting(share=0.5),
    "drift": Setting(base=0.75, swing=0.15),
    HEAVY: Setting(base=0.75, spread=0.1, heavy=True, decisions=60),
    HIDDEN: Setting(hidden=1 / 3, decisions=200),
    **{name: Setting(forging=share) for name, share in FORGED.items()},
}
OTHER_EFFECTS = {PLAIN: tuple(EFFECTS), HIDDEN: (WRONG,), **dict.fromkeys(FORGED, (FAR, WRONG))}
POPULATION, MOST_RUNS = 8_000, 100_000
"""Callers, where they come again, and runs."""


def cells(setup: Setup) -> Iterator[Cell]:
    """Every setting with a candidate that is worse by the margin and one that is no different; more at 80 %."""
    for seed in setup.seeds:
        for setting in SETTINGS:
            for effect in OTHER_EFFECTS.get(setting, (WRONG, SAME)):
                yield Cell.of(CANARY, seed, setting=setting, effect=effect)
        for arm, setting in ((PEEKED, PLAIN), (BY_RUN, HEAVY), (UNBLOCKED, HIDDEN)):
            yield Cell.of(arm, seed, setting=setting, effect=WRONG)


def measure(setup: Setup, cell: Cell) -> Numbers:  # noqa: ARG001 - no model is asked
    """Simulate decisions and count what became of them."""
    setting, effect = SETTINGS[cell.text("setting")], EFFECTS[cell.text("effect")]
    rng = Random(f"{cell.text('setting')} {cell.text('effect')} {cell.seed}")  # noqa: S311 - reproducible
    decide = RULES[cell.arm]
    decisions = [decide(setting, _runs(setting, effect, rng)) for _ in range(setting.decisions)]
    done = [each for each in decisions if each.kind != LATE]
    numbers: dict[str, float] = {"decisions": len(decisions)}
    for kind in ("accepted", "worse", LATE):
        numbers[kind] = sum(each.kind == kind for each in decisions)
    numbers |= _quantiles("candidate", sorted(each.candidate for each in done), len(decisions))
    numbers |= _quantiles("callers", sorted(each.callers for each in done), len(decisions))
    numbers["runs"] = sum(each.runs for each in done) / max(1, len(done))
    return numbers


def _quantiles(name: str, decided: Sequence[int], n: int) -> dict[str, float]:
    """Return the mean of what was decided, and by when 80 % of all were (the most there is: not)."""
    place = n * 80 // 100
    by = decided[place] if place < len(decided) else MAX_CALLERS
    return {f"{name}_mean": sum(decided) / max(1, len(decided)), f"{name}_80": by}


# ---- who calls


def _runs(setting: Setting, effect: float, rng: Random) -> Iterator[Run]:
    """Yield runs, in time; a caller's arm is a matter of its hash, as in the product."""
    callers = [rng.randrange(HASHES) for _ in range(POPULATION)] if setting.heavy else []
    weights = list(accumulate(rng.paretovariate(1.2) for _ in callers))
    own = {caller: rng.gauss(0, setting.spread) for caller in callers}
    bound = setting.share * HASHES
    for at in range(MOST_RUNS):
        caller = rng.choices(callers, cum_weights=weights)[0] if callers else rng.randrange(HASHES)
        is_candidate = caller < bound
        rate = setting.base + own.get(caller, 0.0) + setting.swing * sin(at * 2 * pi / 2_000)
        rate = min(1.0, max(0.0, rate + effect * is_candidate))
        score = float(rng.random() < rate)
        is_hidden = is_candidate and not score and rng.random() < setting.hidden
        # The hash decides, too, and not as for the arm: the same callers in every decision about them.
        forges = caller % 1_000 < setting.forging * 1_000
        yield caller, float(is_candidate) if forges else None if is_hidden else score


# ---- who decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of one candidate."""

    kind: str
    candidate: int
    """Callers that were shown it until then."""
    callers: int
    runs: int


def _by_canary(setting: Setting, runs: Iterator[Run], *, is_blocked: bool = True) -> Decided:
    """Decide by the product's fold and test, as often as it may have changed its mind."""
    canary, enough = Canary(playbook="simulated", terms=_terms(setting)), log(1 / ALPHA)
    seen, kind = 0, LATE
    for caller, score in runs:
        seen += 1
        before = canary.bets.n
        canary.take_run(caller, score)
        if canary.turned_away:
            break
        is_silent = canary.bets.n == before or max(canary.bets.acceptance, canary.bets.rejection) < enough
        if is_silent or (kind == OPEN and canary.bets.n % LOOK):
            continue
        kind = canary_report(canary, 0).state if is_blocked else _unblocked(canary)
        if kind != OPEN:
            break
    candidate, control = canary.candidate.callers, canary.control.callers
    return Decided(
        kind=LATE if kind == OPEN else kind, candidate=candidate, callers=candidate + control, runs=seen
    )


def _unblocked(canary: Canary) -> str:
    return "worse" if canary.bets.rejection >= log(1 / ALPHA) else "accepted"


def _unblocked_canary(setting: Setting, runs: Iterator[Run]) -> Decided:
    return _by_canary(setting, runs, is_blocked=False)


def _by_run(setting: Setting, runs: Iterator[Run]) -> Decided:
    """Decide as if every run were a caller of its own."""
    bets, terms, enough = Bets(), _terms(setting), log(1 / ALPHA)
    for seen, (caller, score) in enumerate(runs, 1):
        is_candidate = in_share(caller, terms)
        bets.bet(score or 0.0, is_candidate=is_candidate, share=setting.share, margin=MARGIN)
        if max(bets.acceptance, bets.rejection) >= enough:
            kind = "accepted" if bets.acceptance >= enough else "worse"
            return Decided(kind=kind, candidate=0, callers=0, runs=seen)
    return Decided(kind=LATE, candidate=0, callers=0, runs=MOST_RUNS)


def _terms(setting: Setting) -> CanaryTerms:
    return CanaryTerms(
        candidate=2,
        control=1,
        share=setting.share,
        margin=MARGIN,
        alpha=ALPHA,
        deadline_ms=1,
    )


def _by_fixed_test(setting: Setting, runs: Iterator[Run]) -> Decided:
    """Decide by the fixed test of two proportions, at the first look at which it would."""
    counts, right, terms = [0, 0], [0.0, 0.0], _terms(setting)
    seen = 0
    for seen, (caller, score) in enumerate(runs, 1):
        side = in_share(caller, terms)
        counts[side] += 1
        right[side] += score or 0.0
        if seen >= MAX_CALLERS:
            break
        if seen % LOOK or min(counts) < 2:  # noqa: PLR2004 - a variance takes two
            continue
        control, candidate = (share / n for share, n in zip(right, counts, strict=True))
        error = sqrt(sum(p * (1 - p) / n for p, n in zip((control, candidate), counts, strict=True)))
        difference = candidate - control
        kind = "accepted" if difference + MARGIN > Z * error else "worse" if difference < -Z * error else ""
        if error and kind:
            return Decided(kind=kind, candidate=counts[1], callers=seen, runs=seen)
    return Decided(kind=LATE, candidate=counts[1], callers=seen, runs=seen)


RULES: Mapping[str, Callable[[Setting, Iterator[Run]], Decided]] = {
    CANARY: _by_canary,
    PEEKED: _by_fixed_test,
    BY_RUN: _by_run,
    UNBLOCKED: _unblocked_canary,
}


def report(setup: Setup, measured: Measured) -> Report:  # noqa: ARG001 - as every experiment has it
    """Show the errors, what a decision took, and decide the criteria."""
    return report_on(measured)
