"""The tables, the criterion and the panels of ``shuffle``, for one set of data."""

from collections.abc import Iterator
from itertools import product

from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict, series_of

UNSHUFFLED, SHUFFLED, DISTINCT = "not shuffled", "shuffled", "distinct"
COUNTED = (("lessons", "lessons", 1), ("kept", "retention", 3))
ORDERS = (
    "By topic: within each batch, reflections with the same lesson came one after the other, as from agents that "
    "work through one kind of task; mixed: in an order drawn with the seed. Without that, leaving the shuffle out "
    "changes nothing, because the order was chance already."
)
TWICE = (
    "Not shuffled, two copies make every group twice, with the same reflections, and the stand-in answers the same "
    "prompt the same way: there, the second copy is worth nothing."
)
EVEN = (
    "The stand-in draws lessons evenly and has no bad days: it cannot show that quality fluctuates without the "
    "shuffle, only that lessons which arrive together are lost together."
)


def report_on(name: str, measured: Measured) -> Report:
    """Return what was found on one set of data."""
    root = int(_dealt(measured).values("groups")[0])
    carries = ((0, "carry off (the paper's combine)"), (1, "carry on (the product's)"))
    tables = [
        *(
            _dealings(f"{name}: dealing, {told}", _dealt(measured).where(carry=carry))
            for carry, told in carries
        ),
        _groups(f"{name}: how many groups", measured.where(DISTINCT, order="mixed", copies=2), root),
    ]
    return Report(
        tables=tuple(tables),
        verdicts=tuple(_verdicts(name, _dealt(measured))),
        panels=(_copies_panel(name, measured), _groups_panel(name, measured)),
        remarks=(ORDERS, TWICE, EVEN),
    )


def _dealt(measured: Measured) -> Measured:
    """Return the cells that compare dealings: at √n groups."""
    return measured.where(groups=measured.where(UNSHUFFLED).values("groups")[0])


def _dealings(title: str, measured: Measured) -> Table:
    arms = (UNSHUFFLED, SHUFFLED, DISTINCT)
    rows = tuple(
        (
            str(order),
            str(copies),
            *(
                measured.where(arm, order=order, copies=copies).spread(number).told(digits)
                for number, _, digits in COUNTED
                for arm in arms
            ),
        )
        for order, copies in product(measured.values("order"), measured.values("copies"))
    )
    columns = tuple(f"{told}, {arm}" for _, told, _ in COUNTED for arm in arms)
    return Table(title=title, columns=("arrival", "copies", *columns), rows=rows)


def _groups(title: str, measured: Measured, root: int) -> Table:
    rows = []
    for groups in sorted(map(int, measured.values("groups"))):
        found = measured.where(groups=groups)
        lessons = (found.where(carry=carry).spread("lessons").told() for carry in (0, 1))
        kept = found.spread("kept").told(2)
        rows.append(
            (f"{groups}{' = √n' if groups == root else ''}", *lessons, kept, found.spread("calls").told(0))
        )
    columns = ("groups", "lessons, carry off", "lessons, carry on", "retention", "calls")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _verdicts(name: str, measured: Measured) -> Iterator[Verdict]:
    for number, told, digits in COUNTED:
        ahead = sorted(_ahead(measured, number))
        behind = sum(gain < 0 for gain, _ in ahead)
        worst, where = ahead[0]
        yield Verdict(
            criterion=f"{name}: distinct groups at least as good as the plain shuffle on every seed mean, {told}",
            met=not behind,
            told=f"behind in {behind} of {len(ahead)} settings; worst {worst:+.{digits}f} ({where}), "
            f"mean {sum(gain for gain, _ in ahead) / len(ahead):+.{digits}f}",
        )


def _ahead(measured: Measured, number: str) -> Iterator[tuple[float, str]]:
    """Yield by how much distinct is ahead on the mean over the seeds, in each setting with copies."""
    copied = (copies for copies in measured.values("copies") if int(copies) > 1)
    for order, copies, carry in product(measured.values("order"), copied, measured.values("carry")):
        found = measured.where(order=order, copies=copies, carry=carry)
        gain = found.where(DISTINCT).spread(number).mean - found.where(SHUFFLED).spread(number).mean
        yield gain, f"{order}, {copies} copies, carry {'on' if carry else 'off'}"


def _copies_panel(name: str, measured: Measured) -> Panel:
    dealt = _dealt(measured).where(carry=0)
    series = tuple(
        series_of(f"{arm}, {order}", dealt.where(arm, order=order), "copies", "lessons")
        for order, arm in product(measured.values("order"), (UNSHUFFLED, SHUFFLED, DISTINCT))
    )
    return Panel(title=f"{name}: dealing, carry off", x="copies", y="lessons kept", series=series)


def _groups_panel(name: str, measured: Measured) -> Panel:
    swept = measured.where(DISTINCT, order="mixed", copies=2)
    series = []
    for carry, told in ((0, "carry off"), (1, "carry on")):
        found = swept.where(carry=carry)
        places = sorted(map(int, found.values("groups")))
        points = tuple((float(place), found.where(groups=place).spread("lessons")) for place in places)
        series.append(Series(name=told, points=points))
    return Panel(title=f"{name}: groups", x="groups", y="lessons kept", series=tuple(series), log_x=True)
