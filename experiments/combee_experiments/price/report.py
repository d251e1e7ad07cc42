"""The tables and criteria of ``price``; the criteria stood before the first run."""

from collections.abc import Iterator

from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict

ACE, GEPA, GEPA_GROUPS = "ACE's curator", "GEPA's release", "GEPA's release, groups"
COMBEE, HEAD_START = "Combee", "Combee, head start"
ONE_COPY = "Combee, head start, one copy"
IN_A_ROW, APART = "in a row", "an hour apart"
NO_MISTAKES, REWORDED, OVERLOADED = "no mistakes", "rewords", "overloaded"
ROLES = ("group", "combine", "check", "again")
CACHED = (0.1, 0.5, 1.0)
"""Prices of a token read from the cache; one read anew is 1."""
WRITTEN = 4.0
OF_ACE = 0.05
LEAST_LESSONS = 0.98
"""Share of the lessons to keep: that of the experiment on coverage, 49 of 50."""
MOST_TIME = 1.05
"""A batch's time with the head start, in times of that without."""
PRICE = (
    "A price is in tokens read anew: one written counts 4, one read from the cache 0.1, 0.5 or 1. It holds all calls "
    "of curators, with checks and what is asked again, and no reflector's or agent's call."
)
SERVER = (
    "The simulated server caches a prefix of at least 1,024 tokens as soon as one call has read its whole prompt "
    "and forgets it after five minutes; it reads 5,000 tokens a second that are not cached, and writes 60."
)
RELEASES = (
    "ACE's curator reads the whole playbook for each reflection; what changes stands before the playbook, so nothing "
    "is cached. GEPA's release writes the whole text for each minibatch of three, or for each of 6 groups and their "
    "combine. Of their prompts only the length is theirs."
)


def report_on(measured: Measured) -> Report:
    """Return what was found."""
    return Report(
        tables=(_prices(measured), _tokens(measured), _times(measured)),
        verdicts=tuple(_verdicts(measured)),
        panels=(_panel(measured),),
        remarks=(PRICE, SERVER, RELEASES),
    )


def price(found: Measured, cached: float, name: str = "all") -> float:
    """Return the price of some calls."""
    read, known, written = (found.spread(f"{name}_{part}").mean for part in ("in", "cached", "out"))
    return read - known + cached * known + WRITTEN * written


def per_lesson(found: Measured, cached: float) -> float:
    """Return the price of a lesson kept."""
    return price(found, cached) / max(1.0, found.spread("lessons").mean)


def of_ace(found: Measured, measured: Measured, cached: float) -> float:
    """Return the price of a lesson as a share of ACE's curator's in the same place."""
    return per_lesson(found, cached) / per_lesson(measured.where(ACE, pause=IN_A_ROW), cached)


def _places(measured: Measured) -> Iterator[tuple[tuple[str, int, str], Measured, Measured]]:
    """Yield each place (model, start, pause) with what was measured there, and with all pauses."""
    for model in measured.values("model"):
        for start in measured.values("start"):
            alike = measured.where(model=model, start=start)
            for pause in alike.values("pause"):
                yield (str(model), int(start), str(pause)), alike.where(pause=pause), alike


def _prices(measured: Measured) -> Table:
    rows = []
    for (model, start, pause), found, alike in _places(measured):
        for arm in found.arms():
            own = found.where(arm)
            rows.append(
                (
                    *(model, f"{start:,}", pause, arm),
                    own.spread("lessons").told(1),
                    f"{per_lesson(own, CACHED[0]):,.0f}",
                    *(f"{of_ace(own, alike, cached):.3f}" for cached in CACHED),
                )
            )
    return Table(
        title="Price of a lesson kept",
        columns=(
            *("model", "playbook", "batches", "curator", "lessons"),
            "tokens a lesson",
            *(f"of ACE's, cached {cached:g}" for cached in CACHED),
        ),
        rows=tuple(rows),
        note="Means over the seeds.",
    )


def _tokens(measured: Measured) -> Table:
    rows = []
    for (model, start, pause), found, _ in _places(measured):
        for arm in found.arms():
            own = found.where(arm)
            rows.append(
                (
                    *(model, f"{start:,}", pause, arm, f"{own.spread('calls').mean:.0f}"),
                    *(_told(own, name) for name in ("all", *ROLES)),
                )
            )
    return Table(
        title="Tokens: read (of them cached) / written",
        columns=("model", "playbook", "batches", "curator", "calls", "all", *ROLES),
        rows=tuple(rows),
        note="GEPA's calls have no such roles.",
    )


def _told(own: Measured, name: str) -> str:
    read, cached, written = (own.spread(f"{name}_{part}").mean for part in ("in", "cached", "out"))
    return f"{read:,.0f} ({cached:,.0f}) / {written:,.0f}" if read else ""


def _times(measured: Measured) -> Table:
    rows = [
        (
            *(model, f"{start:,}", pause),
            *(f"{found.where(arm).spread('batch_s').mean:.1f}" for arm in (COMBEE, HEAD_START)),
            f"{_slower(found):.3f}",
        )
        for (model, start, pause), found, _ in _places(measured)
    ]
    return Table(
        title="Seconds of a batch",
        columns=("model", "playbook", "batches", COMBEE, HEAD_START, "times as long"),
        rows=tuple(rows),
    )


def _slower(found: Measured) -> float:
    return found.where(HEAD_START).spread("batch_s").mean / found.where(COMBEE).spread("batch_s").mean


def _verdicts(measured: Measured) -> Iterator[Verdict]:
    for arm in (COMBEE, HEAD_START, ONE_COPY):
        for (model, start, pause), found, alike in _places(measured):
            share = of_ace(found.where(arm), alike, CACHED[0])
            yield Verdict(
                criterion=f"{arm}, {model}, {start:,} tokens, batches {pause}: at most {OF_ACE} of ACE's",
                met=share <= OF_ACE,
                told=f"{share:.3f}",
            )
        kept, where = min(
            (found.where(arm).spread("lessons").mean / found.where(arm).spread("lessons_there").mean, place)
            for place, found, _ in _places(measured)
        )
        yield Verdict(
            criterion=f"{arm}: at least {LEAST_LESSONS:.0%} of the lessons",
            met=kept >= LEAST_LESSONS,
            told=f"worst {kept:.1%} ({', '.join(map(str, where))})",
        )
    slowest, where = max((_slower(found), place) for place, found, _ in _places(measured))
    yield Verdict(
        criterion=f"the head start takes at most {MOST_TIME - 1:.0%} of a batch's time",
        met=slowest <= MOST_TIME,
        told=f"worst {slowest - 1:.1%} ({', '.join(map(str, where))})",
    )


def _panel(measured: Measured) -> Panel:
    found = measured.where(model=NO_MISTAKES, pause=IN_A_ROW)
    series = tuple(
        Series(
            name=arm,
            points=tuple(
                (
                    of_ace(found.where(arm, start=start), found.where(start=start), cached),
                    own.spread("lessons"),
                )
                for start in found.values("start")
                for cached in CACHED
                if (own := found.where(arm, start=start))
            ),
            style="points",
        )
        for arm in (COMBEE, HEAD_START, ONE_COPY)
    )
    return Panel(title="Batches in a row", x="price of a lesson, of ACE's", y="lessons kept", series=series)
