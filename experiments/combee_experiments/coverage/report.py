"""The criteria, tables and panels of ``coverage``, for one set of data; the criteria stood before the first run."""

from collections.abc import Iterator, Mapping

from combee_experiments.arms.arms import ADAPTIVE, NAIVE, PLAIN
from combee_experiments.data.samples import Data, Kind
from combee_experiments.running.cells import Measured, Value
from combee_experiments.running.report import Panel, Report, Table, Verdict, series_of

LESSONS: Mapping[float, Mapping[Kind, float]] = {
    0.0: {"formula": 49, "finer": 100},
    0.1: {"formula": 49, "finer": 100},
    0.3: {"formula": 48, "finer": 90},
}
"""Rate of false yes → minimum lessons kept, in every way of overload, verbatim and paraphrased."""
VERIFIED: Mapping[float, float] = {0.0: 0.03, 0.1: 0.03, 0.3: 0.10}
"""Rate of false yes → maximum distance of the verified share from the truth."""
ENTRIES = 1.2
"""Maximum entries a lesson where the merger makes no mistake, in free wordings, with embeddings or the check call."""
ENTRIES_OVERLOADED = 1.6
CHECK = 0.06
"""Maximum share of a batch's tokens that the check takes."""
CHECK_AND_AGAIN = 0.15
"""The same, with what is carried and asked again."""
IN_FORCE, NOTHING_LOST = "in_steps", "nothing is lost"
UNCHECKED = "Combee, unchecked"
VERBATIM, PARAPHRASED = "verbatim", "paraphrased"
WORDS_AND_CHECK, WORDS_ALONE = "words and check", "words alone"
COUNTED = "A lesson counts only if an entry of the last version is that lesson, not if an entry names it."
TRUTH = (
    "True is the share of the reflections whose lesson the model's own result says, or an entry that stays; said is "
    "what the model claims, verified what Combee witnessed or had checked, carried what code put in. Off is the mean "
    "distance of verified from true in a batch."
)
ERRING = (
    "A checker that errs says yes, with the nearest statement, to that share of the lessons that no statement says; "
    "one that errs both ways also denies that share of those that one says."
)
COST = (
    "Calls in a row are virtual seconds of a batch at one second a call. Shares are of all the tokens, read and "
    "written, that the updates take; embeddings are not counted in them."
)


def report_on(data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    lossy = measured.where(law=IN_FORCE)
    usual = lossy.where(by=WORDS_AND_CHECK, false_no=0.0)
    ways = [
        ((overload, wording), usual.where(overload=overload, wording=wording))
        for overload in usual.values("overload")
        for wording in (VERBATIM, PARAPHRASED)
    ]
    return Report(
        tables=(
            _lessons(data, ways),
            _audits(data, ways),
            _costs(data, ways),
            _compared(data, measured),
            _both_ways(data, lossy),
        ),
        verdicts=tuple(_verdicts(data, measured)),
        panels=(_panel(data, usual),),
        remarks=(COUNTED, TRUTH, ERRING, COST),
    )


Ways = list[tuple[tuple[Value, str], Measured]]


def _checked(measured: Measured) -> dict[float, Measured]:
    """Return what was measured of Combee with a checker that denies nothing, by its rate of false yes."""
    ours = measured.where(ADAPTIVE.name, false_no=0.0)
    return {float(rate): ours.where(false_yes=rate) for rate in ours.values("false_yes")}


def _lessons(data: Data, ways: Ways) -> Table:
    rates = LESSONS
    rows = tuple(
        (
            *map(str, way),
            *(found.where(arm).spread("lessons").told() for arm in (NAIVE.name, PLAIN.name)),
            *(_checked(found)[rate].spread("lessons").told() for rate in rates),
            *(_checked(found)[rate].spread("entries_per_lesson").told(2) for rate in rates),
        )
        for way, found in ways
    )
    said = max(numbers["lessons_there"] for _, found in ways for _, numbers in found)
    erring = [f"checker errs {rate:.0%}" for rate in rates]
    return Table(
        title=f"{data.name}: lessons kept of the {said:.0f} that the reflections say",
        columns=(
            "overload",
            "wording",
            "naive",
            "plain",
            *erring,
            *(f"entries a lesson, {one}" for one in erring),
        ),
        rows=rows,
    )


def _audits(data: Data, ways: Ways) -> Table:
    names = ("said", "true", "verified", "off", "carried")
    rows = []
    for way, found in ways:
        plain = found.where(PLAIN.name)
        rows.append((*map(str, way), "plain", *(_mean(plain, name) for name in names[:2]), "–", "–", "–"))
        for rate, ours in _checked(found).items():
            rows.append((*map(str, way), f"errs {rate:.0%}", *(_mean(ours, name) for name in names)))
    return Table(
        title=f"{data.name}: what is said of the reflections, and what is true",
        columns=("overload", "wording", "checker", *names),
        rows=tuple(rows),
        note="Means over the seeds.",
    )


def _mean(measured: Measured, name: str) -> str:
    return f"{measured.spread(name).mean:.2f}"


def _costs(data: Data, ways: Ways) -> Table:
    rows = []
    for way, found in ways:
        for arm in (PLAIN.name, UNCHECKED, ADAPTIVE.name):
            ours = found.where(arm, false_yes=0.0)
            if not ours:
                continue
            updates = ours.spread("updates").mean
            rows.append(
                (
                    *map(str, way),
                    arm,
                    f"{ours.spread('calls').mean / updates:.1f}",
                    f"{ours.spread('calls_in_a_row').mean:.1f}",
                    f"{(ours.spread('tokens_in').mean + ours.spread('tokens_out').mean) / updates:,.0f}",
                    f"{ours.spread('check_share').mean:.1%}",
                    f"{ours.spread('checked_share').mean:.1%}",
                )
            )
    return Table(
        title=f"{data.name}: what a batch costs",
        columns=(
            *("overload", "wording", "arm", "calls", "calls in a row", "tokens"),
            *("check, share of tokens", "with what is asked again"),
        ),
        rows=tuple(rows),
        note="Means over the seeds; the checker makes no mistake.",
    )


def _compared(data: Data, measured: Measured) -> Table:
    rows = []
    ours = measured.where(ADAPTIVE.name)
    for law in (NOTHING_LOST, IN_FORCE):
        for wording in ours.where(law=law).values("wording"):
            for by in ours.where(law=law).values("by"):
                found = ours.where(law=law, by=by, wording=wording)
                found = found.where(overload="mixed") if law == IN_FORCE else found
                for rate, one in _checked(found).items():
                    rows.append(
                        (
                            "none" if law == NOTHING_LOST else "mixed",
                            str(wording),
                            str(by),
                            f"{rate:.0%}",
                            one.spread("lessons").told(),
                            one.spread("entries_per_lesson").told(2),
                            _mean(one, "verified"),
                            _mean(one, "true"),
                            f"{one.spread('check_share').mean:.1%}",
                            f"{one.spread('checked_share').mean:.1%}",
                            f"{one.spread('embedding_share').mean:.1%}",
                        )
                    )
    return Table(
        title=f"{data.name}: by what lessons are recognised",
        columns=(
            *("overload", "wording", "recognised by", "checker errs", "lessons", "entries a lesson"),
            *("verified", "true", "check, share of tokens", "with what is asked again", "embeddings, share"),
        ),
        rows=tuple(rows),
    )


def _both_ways(data: Data, lossy: Measured) -> Table:
    rows = []
    ours = lossy.where(ADAPTIVE.name, by=WORDS_AND_CHECK)
    for wording in (VERBATIM, PARAPHRASED):
        for rate in (rate for rate in ours.values("false_no") if rate):
            found = ours.where(wording=wording, false_no=rate)
            rows.append(
                (
                    wording,
                    f"{float(rate):.0%}",
                    found.spread("lessons").told(),
                    found.spread("entries_per_lesson").told(2),
                    *(_mean(found, name) for name in ("verified", "true", "off")),
                    *(f"{found.spread(name).mean:.1%}" for name in ("check_share", "checked_share")),
                )
            )
    return Table(
        title=f"{data.name}: a checker that errs both ways, overload mixed",
        columns=(
            *("wording", "checker errs", "lessons", "entries a lesson", "verified", "true", "off"),
            *("check, share of tokens", "with what is asked again"),
        ),
        rows=tuple(rows),
    )


def _verdicts(data: Data, measured: Measured) -> Iterator[Verdict]:
    ours = measured.where(ADAPTIVE.name)
    checked = ours.where(law=IN_FORCE, by=WORDS_AND_CHECK)
    usual = checked.where(false_no=0.0)
    for rate, least in LESSONS.items():
        for denied in dict.fromkeys((0.0, rate)):
            found = checked.where(false_yes=rate, false_no=denied)
            errs = f"{data.name}, checker errs {rate:.0%}{' both ways' if denied else ''}"
            if data.kind in least:
                worst, where = min((one.spread("lessons").mean, name) for name, one in _ways(found))
                yield Verdict(
                    criterion=f"{errs}: at least {least[data.kind]:.0f} lessons",
                    met=worst >= least[data.kind],
                    told=f"worst {worst:.1f} ({where})",
                )
            off, where = max((one.spread("off").mean, name) for name, one in _ways(found))
            yield Verdict(
                criterion=f"{errs}: verified within {VERIFIED[rate]:.2f} of the truth",
                met=off <= VERIFIED[rate],
                told=f"worst {off:.3f} ({where})",
            )
    whole = ours.where(law=NOTHING_LOST)
    for by in whole.values("by"):
        found = whole.where(by=by)
        entries, lost = found.spread("entries_per_lesson").mean, _lost(found)
        if by == WORDS_ALONE:
            continue
        yield Verdict(
            criterion=f"{data.name}, nothing overlooked, {by}: at most {ENTRIES} entries a lesson, nothing lost",
            met=entries <= ENTRIES and lost <= 0,
            told=f"{entries:.2f}, {lost:.1f} lessons lost",
        )
    for by in measured.where(law=IN_FORCE).values("by"):
        if by != WORDS_ALONE:
            found = ours.where(law=IN_FORCE, by=by, wording=PARAPHRASED, false_yes=0.0)
            entries, where = max((one.spread("entries_per_lesson").mean, name) for name, one in _ways(found))
            yield Verdict(
                criterion=f"{data.name}, overloaded, {by}: at most {ENTRIES_OVERLOADED} entries a lesson",
                met=entries <= ENTRIES_OVERLOADED,
                told=f"worst {entries:.2f} ({where})",
            )
    for name, most, what in (
        ("check_share", CHECK, "the check"),
        ("checked_share", CHECK_AND_AGAIN, "the check and what is asked again"),
    ):
        share, where = max((one.spread(name).mean, where) for where, one in _ways(usual))
        yield Verdict(
            criterion=f"{data.name}: {what} takes at most {most:.0%} of a batch's tokens",
            met=share <= most,
            told=f"worst {share:.1%} ({where})",
        )


def _ways(measured: Measured) -> Iterator[tuple[str, Measured]]:
    """Yield what was measured in each way of overload, wording and rate of errors."""
    for overload in measured.values("overload"):
        for wording in measured.where(overload=overload).values("wording"):
            found = measured.where(overload=overload, wording=wording)
            for rate in found.values("false_yes"):
                yield f"{overload}, {wording}, checker errs {float(rate):.0%}", found.where(false_yes=rate)


def _lost(measured: Measured) -> float:
    return max(numbers["lessons_there"] - numbers["lessons"] for _, numbers in measured)


def _panel(data: Data, usual: Measured) -> Panel:
    ours = usual.where(ADAPTIVE.name, wording=PARAPHRASED)
    series = tuple(
        series_of(f"Combee, {overload}", ours.where(overload=overload), "false_yes", "lessons", factor=100)
        for overload in ours.values("overload")
    )
    return Panel(title=f"{data.name}, paraphrased", x="false yes, %", y="lessons kept", series=series)
