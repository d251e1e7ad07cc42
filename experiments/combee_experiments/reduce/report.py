"""The tables and criteria of ``reduce``."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from combee_experiments.running.cells import Measured
from combee_experiments.running.paired import Difference, difference
from combee_experiments.running.report import Panel, Report, Table, Verdict, series_by

EMPTY, LARGE, ALIKE = "empty playbook", "playbook of 14,000 tokens", "lessons that differ in a word"
PARAPHRASE = "paraphrase"
SINGLE, TODAY, SURE = "single", "single, carry", "single, carry, no guesses"
CALLS_INVENT = ("invented", "all")
BY_GUESSES = ("wordings_per_lesson", "invented", "invented_by_calls", "wrong")
"""Numbers that a carry without guesses may change."""
NO_GAIN = "lessons_only"
LESS = 0.02
MORE = 1.05
MOST_TOKENS, MOST_CALLS = 1.1, 1.5
FEWER = 0.9
HALF = 0.5
"""The criteria, written down before the first complete run: a share of the lessons, and times today's."""
BESIDE = (
    ("entries per lesson", "wordings_per_lesson", 2),
    ("invented", "invented", 0),
    ("of these by calls", "invented_by_calls", 0),
    ("wrong", "wrong", 0),
    ("contradicting pairs", "contradicted", 1),
    ("calls", "calls", 0),
    ("tokens read, thousands", "tokens_in", 0),
    ("wall time, s", "seconds", 0),
)
THOUSANDS = {"tokens_in": 1e-3}
RULES = (
    "Under lessons_only, which fits the paper's row as well, groups gain nothing over one call; what an arm gains "
    "there it gains at the combine: by the carry, which is code, or by reading less in a call."
)
PARTS = (
    "topic, N: alike proposals are combined together, a call for each part of about N tokens, two levels; single: a "
    "call for all that a node reads, in levels bounded by 32,000 tokens and 32 children; carry: code passes on what "
    "a call neither used nor dropped by name; no guesses: not what rests on guesses alone. 'single, carry' is the "
    "default."
)
INVENTING = (
    "Each call adds two lessons in mode invented, so an arm that makes more calls is given more of them; that is how "
    "the stand-in is built."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where arms are compared."""

    told: str
    law: str
    mode: str
    measured: Measured

    def mean(self, arm: str, number: str) -> float:
        """Return one number of an arm."""
        return self.measured.where(arm).spread(number).mean

    def against(self, arm: str, other: str) -> Difference:
        """Return how many more lessons an arm keeps than another, in percent of those there."""
        share = 100 / self.mean(arm, "lessons_there")
        ours, theirs = (self.measured.where(name).by_seed("lessons") for name in (arm, other))
        return difference(_times(ours, share), _times(theirs, share))


def _times(numbers: Mapping[int, float], factor: float) -> dict[int, float]:
    return {seed: number * factor for seed, number in numbers.items()}


def report_on(measured: Measured) -> Report:
    """Return what was found."""
    pairs = [place for place in _places(_of(measured, {TODAY, SURE})) if place.measured.where(SURE)]
    measured = _of_all_arms(measured)
    tables = [
        table
        for given in measured.values("given")
        for size in measured.where(given=given).values("reflections")
        for table in _tables(str(given), int(size), measured.where(given=given, reflections=size))
    ]
    places = list(_places(measured))
    if pairs:
        tables.append(_without_guesses(pairs))
    return Report(
        tables=tuple(tables),
        verdicts=(*_verdicts(places, measured.arms()), *(_on_guesses(pairs) if pairs else ())),
        panels=tuple(_panels(measured)),
        remarks=(PARTS, INVENTING, RULES),
    )


def _of(measured: Measured, arms: Collection[str]) -> Measured:
    return Measured({cell: numbers for cell, numbers in measured if cell.arm in arms})


def _of_all_arms(measured: Measured) -> Measured:
    """Return the seeds that all arms have: today's has more of them, for its comparison without guesses."""
    others = _of(measured, {arm for arm in measured.arms() if arm not in (TODAY, SURE)})
    seeds = {(cell.parameters, cell.seed) for cell, _ in others}
    return Measured(
        {
            cell: numbers
            for cell, numbers in measured
            if cell.arm != SURE and (cell.parameters, cell.seed) in seeds
        }
    )


def _places(measured: Measured) -> Iterator[Place]:
    for given in measured.values("given"):
        for size in measured.where(given=given).values("reflections"):
            of_size = measured.where(given=given, reflections=size)
            for law in of_size.values("law"):
                for mode in of_size.values("mode"):
                    told = f"{law}, mode {mode}, n = {int(size):,}" + _on(str(given))
                    found = of_size.where(law=law, mode=mode)
                    yield Place(told=told, law=str(law), mode=str(mode), measured=found)


def _on(given: str) -> str:
    return "" if given == EMPTY else f", {given}"


def _tables(given: str, size: int, measured: Measured) -> Iterator[Table]:
    there = max(numbers["lessons_there"] for _, numbers in measured)
    arms = measured.arms()
    places = list(_places(measured))
    name = f"n = {size:,}{_on(given)}"
    yield Table(
        title=f"{name}: lessons kept of {there:.0f}",
        columns=("rule", "mode", *arms),
        rows=tuple(
            (
                place.law,
                place.mode,
                *(place.measured.where(arm).spread("lessons").told() for arm in arms),
            )
            for place in places
        ),
    )
    yield Table(
        title=f"{name}: at what price ({' / '.join(arms)})",
        columns=("rule", "mode", *(column for column, *_ in BESIDE)),
        rows=tuple(
            (
                place.law,
                place.mode,
                *(
                    " / ".join(
                        f"{place.mean(arm, number) * THOUSANDS.get(number, 1):,.{digits}f}" for arm in arms
                    )
                    for _, number, digits in BESIDE
                ),
            )
            for place in places
        ),
        note="Means over the seeds.",
    )


def _verdicts(places: list[Place], arms: tuple[str, ...]) -> Iterator[Verdict]:
    for arm in arms:
        if arm not in (SINGLE, TODAY):
            yield from _against_today(arm, places)
            if TODAY.removeprefix(SINGLE) not in arm:
                yield _gains(arm, places)


def _as_many(arm: str, places: list[Place]) -> Verdict:
    worst = min(places, key=lambda place: place.against(arm, TODAY).high)
    behind = [place for place in places if place.against(arm, TODAY).high < -100 * LESS]
    return Verdict(
        criterion=f"{arm}: everywhere the 95 % interval of the difference from today's lessons includes or exceeds"
        f" −{LESS:.0%} of them",
        met=not behind,
        told=f"missed in {len(behind)} of {len(places)}; worst {worst.against(arm, TODAY).told()} % ({worst.told})",
    )


def _on_guesses(places: list[Place]) -> Iterator[Verdict]:
    """Decide whether the carry without guesses keeps the lessons, and at most half of what calls make up."""
    yield _as_many(SURE, places)
    yield _at_most(
        f"{SURE}: at most {HALF:g} × today's entries that calls invented (modes {' and '.join(CALLS_INVENT)})",
        SURE,
        [place for place in places if place.mode in CALLS_INVENT],
        "invented_by_calls",
        HALF,
    )


def _without_guesses(places: list[Place]) -> Table:
    """Show what the carry leaves out with guesses."""
    columns = [column for column in BESIDE if column[1] in BY_GUESSES]
    return Table(
        title=f"{TODAY} / {SURE}",
        columns=("n", "rule", "mode", "lessons", "difference, %", *(name for name, *_ in columns)),
        rows=tuple(
            (
                f"{place.measured.values('reflections')[0]:,}",
                place.law,
                place.mode,
                " / ".join(f"{place.mean(arm, 'lessons'):.1f}" for arm in (TODAY, SURE)),
                place.against(SURE, TODAY).told(),
                *(
                    " / ".join(f"{place.mean(arm, number):,.{digits}f}" for arm in (TODAY, SURE))
                    for _, number, digits in columns
                ),
            )
            for place in places
        ),
        note="Difference: of the lessons there, paired by seed, and its 95 % interval.",
    )


def _against_today(arm: str, places: list[Place]) -> Iterator[Verdict]:
    yield _as_many(arm, places)
    yield _at_most(
        f"{arm}: at most {MORE:g} × today's entries per lesson", arm, places, "wordings_per_lesson", MORE
    )
    yield _at_most(f"{arm}: at most {MORE:g} × today's invented entries", arm, places, "invented", MORE)
    yield _at_most(
        f"{arm}: at most {MOST_TOKENS:g} × the tokens that today's reads",
        arm,
        places,
        "tokens_in",
        MOST_TOKENS,
    )
    yield _at_most(f"{arm}: at most {MOST_CALLS:g} × today's calls", arm, places, "calls", MOST_CALLS)
    yield _fewer(arm, places)


def _ratio(place: Place, arm: str, number: str) -> float:
    """Return how many times today's an arm's mean is; nothing against nothing is as much."""
    ours, today = place.mean(arm, number), place.mean(TODAY, number)
    return 1.0 if ours == today else ours / (today or 1.0)


def _at_most(criterion: str, arm: str, places: list[Place], number: str, most: float) -> Verdict:
    ratios = [(_ratio(place, arm, number), place.told) for place in places]
    above = sum(ratio > most for ratio, _ in ratios)
    ratio, where = max(ratios)
    return Verdict(
        criterion=f"{criterion}, everywhere",
        met=not above,
        told=f"missed in {above} of {len(places)}; worst {ratio:.2f} × ({where})",
    )


def _fewer(arm: str, places: list[Place]) -> Verdict:
    """Decide whether something is won: with paraphrase, fewer entries for a lesson at some size under every rule."""
    best: dict[str, tuple[float, str]] = {}
    for place in places:
        if place.mode == PARAPHRASE:
            found = _ratio(place, arm, "wordings_per_lesson"), place.told
            best[place.law] = min(found, best.get(place.law, found))
    ratio, where = max(best.values())
    return Verdict(
        criterion=f"{arm}: at some size at most {FEWER:g} × today's entries per lesson with paraphrase, under every"
        " rule",
        met=ratio <= FEWER,
        told=f"the rule with the least gain: {ratio:.2f} × ({where})",
    )


def _gains(arm: str, places: list[Place]) -> Verdict:
    worst = min(places, key=lambda place: place.against(arm, SINGLE).low)
    without = sum(place.against(arm, SINGLE).low <= 0 for place in places)
    return Verdict(
        criterion=f"{arm}: more lessons than {SINGLE}, the 95 % interval above 0, everywhere",
        met=not without,
        told=f"missed in {without} of {len(places)}; worst {worst.against(arm, SINGLE).told()} % ({worst.told})",
    )


def _panels(measured: Measured) -> Iterator[Panel]:
    for law in measured.values("law"):
        found = measured.where(law=law, mode=PARAPHRASE, given=EMPTY)
        for told, number in (("lessons kept", "lessons"), ("entries per lesson", "wordings_per_lesson")):
            yield Panel(
                title=f"{law}, paraphrase",
                x="reflections in the batch",
                y=told,
                series=series_by(found, "reflections", number),
                log_x=True,
                log_y=number == "lessons",
            )
