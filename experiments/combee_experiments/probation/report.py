"""The tables, criteria and panels of ``probation``, for one set of data."""

from collections.abc import Iterator

from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict

OFF = "off"
TRUE, INVENTED, CORRELATED, PARAPHRASED = "none", "invented", "correlated", "paraphrase"
"""Modes of the stand-in."""
LEAST_KEPT = 0.95
MOST_SHOWN = 1.0
KEPT = (
    "Lessons are shown if the last version's active entries hold them. Rare ones are taught by fewer than m"
    " reflections: every fifth lesson is left with one reflection, and an arm can show it only against its purpose."
)
MODES = (
    "Invented: each model call makes up two lessons, each another one, and names an item for it. Correlated: a"
    " tenth of the reflections state one of eight invented lessons, so that several support each. Paraphrase: each"
    " reflection words its lesson in one of several ways."
)


def report_on(data: Data, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    return Report(
        tables=(_table(data, measured),),
        verdicts=tuple(_verdicts(data, measured)),
        panels=(_panel(data, measured),),
        remarks=(KEPT, MODES),
    )


def _strength(arm: str) -> int:
    """Return the m of an arm; rare lessons are counted as for m = 2 where probation is off."""
    return 2 if arm == OFF else int(arm.rpartition(" ")[2])


def _table(data: Data, measured: Measured) -> Table:
    rows = []
    for mode in measured.values("mode"):
        for arm in measured.arms():
            found, least = measured.where(arm, mode=mode), _strength(arm)
            rows.append(
                (
                    str(mode),
                    arm,
                    f"{found.spread(f'common_shown_{least}').told()} of {found.spread(f'common_{least}').told()}",
                    f"{found.spread(f'rare_shown_{least}').told()} of {found.spread(f'rare_{least}').told()}",
                    found.spread(f"rare_proposed_{least}").told(),
                    f"{found.spread(f'through_shown_{least}').told()} of {found.spread(f'through_{least}').told()}",
                    found.spread("invented_shown").told(),
                    found.spread("invented_proposed").told(),
                    f"{found.spread('shown').told(0)} / {found.spread('proposed').told(0)}",
                    found.spread("expired").told(0),
                    found.spread("wait").told(),
                )
            )
    columns = (
        *(
            "mode",
            "probation",
            "lessons shown",
            "rare ones shown",
            "rare ones proposed",
            "shown of those through the scan",
        ),
        *("invented, shown", "invented, proposed", "entries shown / proposed", "expired", "batches waited"),
    )
    return Table(
        title=f"{data.name}: what agents are shown",
        columns=columns,
        rows=tuple(rows),
        note="Batches waited: between a lesson's first entry and the first that is shown, in the mean.",
    )


def _verdicts(data: Data, measured: Measured) -> Iterator[Verdict]:
    for arm in measured.arms():
        if arm == OFF:
            continue
        least = _strength(arm)
        number = f"common_shown_{least}"
        shares = {
            str(mode): found.spread(number).mean / max(1.0, found.spread(f"common_{least}").mean)
            for mode in measured.values("mode")
            for found in (measured.where(arm, mode=mode),)
        }
        wanted = f"{LEAST_KEPT:.0%} of the lessons with at least {least} reflections are shown"
        paraphrased = shares.pop(PARAPHRASED)
        worst = min(shares, key=lambda mode: shares[mode])
        yield Verdict(
            criterion=f"{data.name}, {arm}: {wanted} in every mode but paraphrase",
            met=shares[worst] >= LEAST_KEPT,
            told=f"worst {shares[worst]:.1%} ({worst})",
        )
        yield Verdict(
            criterion=f"{data.name}, {arm}: {wanted} with paraphrase",
            met=paraphrased >= LEAST_KEPT,
            told=f"{paraphrased:.1%}",
        )
        yield _of_those_through(data, measured, arm)
        made_up = measured.where(mode=INVENTED)
        shown, before = (made_up.where(which).spread("invented_shown") for which in (arm, OFF))
        yield Verdict(
            criterion=f"{data.name}, {arm}: at most {MOST_SHOWN:g} lesson that a call invented is shown",
            met=shown.mean <= MOST_SHOWN,
            told=f"{before.told()} → {shown.told()}",
        )


def _of_those_through(data: Data, measured: Measured, arm: str) -> Verdict:
    least = _strength(arm)
    shares = {
        str(mode): found.spread(f"through_shown_{least}").mean
        / max(1.0, found.spread(f"through_{least}").mean)
        for mode in measured.values("mode")
        for found in (measured.where(arm, mode=mode),)
    }
    worst = min(shares, key=lambda mode: shares[mode])
    return Verdict(
        criterion=f"{data.name}, {arm}: {LEAST_KEPT:.0%} of the lessons for which {least} reflections got through the"
        " scan are shown in every mode",
        met=shares[worst] >= LEAST_KEPT,
        told=f"worst {shares[worst]:.1%} ({worst})",
    )


def _panel(data: Data, measured: Measured) -> Panel:
    series = tuple(
        Series(
            name=f"{told}, {mode}",
            points=tuple(
                (float(_strength(arm) if arm != OFF else 1), measured.where(arm, mode=mode).spread(number))
                for arm in measured.arms()
            ),
        )
        for mode in measured.values("mode")
        for told, number in (("lessons", "common_shown_2"), ("invented", "invented_shown"))
    )
    return Panel(title=data.name, x="m (1: off)", y="shown in the end", series=series)
