"""The tables and the criteria of ``attacks``."""

from collections.abc import Iterator

from combee_experiments.attacks.producers import NONE
from combee_experiments.attacks.protections import ARMS, LAB, SHORT, Arm
from combee_experiments.running.cells import Measured
from combee_experiments.running.report import Panel, Report, Series, Table, Verdict

SHARE, LOST, LOST_TO_THREE, PRICE = 0.35, 0.05, 0.10, 0.02
COLUMNS = (
    *("arm", "attack", "harmful shown", "share", "lessons lost", "destroyed", "of two sources or more"),
    *("waiting", "wrongly accepted", "wrongly rejected", "decisions"),
)
WORST = ("arm", "harmful shown", "share", "lessons lost", "destroyed", "of two sources or more")


def lost(measured: Measured, arm: str, attack: str) -> float:
    """Return the share of lessons that are lost in the worst run, of those that lab shows without attackers."""
    usual = measured.where(LAB, attack=NONE).spread("lessons").mean
    return 1 - measured.where(arm, attack=attack).spread("lessons").low / max(1.0, usual)


def high(measured: Measured, arm: str, attack: str, name: str) -> float:
    """Return a figure of the worst run."""
    return measured.where(arm, attack=attack).spread(name).high


def attacks_on(measured: Measured, arm: str) -> list[str]:
    """Return the attacks that were measured on an arm, in order, without none."""
    attacks = [str(attack) for attack in measured.values("attack") if attack != NONE]
    return [attack for attack in attacks if len(measured.where(arm, attack=attack))]


def rows(measured: Measured) -> Iterator[tuple[str, ...]]:
    """Yield a line for each arm and attack."""
    for arm in measured.arms():
        for attack in (NONE, *attacks_on(measured, arm)):
            found = measured.where(arm, attack=attack)
            if len(found):
                yield (
                    arm,
                    attack,
                    found.spread("harmful").told(),
                    f"{found.spread('share').mean:.1%}",
                    f"{lost(measured, arm, attack):.1%}",
                    *(found.spread(name).told() for name in ("destroyed", "destroyed_supported", "waiting")),
                    *(
                        found.spread(name).told()
                        for name in ("wrongly_accepted", "wrongly_rejected", "decisions")
                    ),
                )


def worst(measured: Measured) -> Iterator[tuple[str, ...]]:
    """Yield for each arm its worst figures, each with the attack that brought it."""
    for arm in measured.arms():
        attacks = attacks_on(measured, arm)
        if not attacks:
            continue
        cells = []
        for name in ("harmful", "share", "lost", "destroyed", "destroyed_supported"):
            figures = {
                attack: lost(measured, arm, attack) if name == "lost" else high(measured, arm, attack, name)
                for attack in attacks
            }
            attack = max(figures, key=lambda attack: figures[attack])
            shown = f"{figures[attack]:.0%}" if name in {"share", "lost"} else f"{figures[attack]:g}"
            cells.append(f"{shown} ({attack})" if figures[attack] > 0 else shown)
        yield (arm, *cells)


def verdicts(measured: Measured) -> Iterator[Verdict]:
    """Decide the criteria; what breaks one is named."""
    for arm in (Arm(posture="team", room=SHORT), Arm(posture="team")):
        share = SHARE if arm.room == SHORT else 1.0
        yield _bound(measured, arm, share=share, lost_at_most=LOST)
    for arm in ARMS.values():
        if arm.posture == "public" and arm.judges:
            most = LOST if arm.crew == "one" else LOST_TO_THREE
            yield _bound(measured, arm, share=0.0, lost_at_most=most)
    nobody = Arm(posture="public", crew="nobody proves").name
    if attacks := attacks_on(measured, nobody):
        shown = max(high(measured, nobody, attack, "shown") for attack in attacks)
        yield Verdict(criterion=f"{nobody}: nothing is shown", met=not shown, told=f"{shown:g} entries shown")
    for posture, most in (("team", 0.0), ("public", PRICE)):
        arm_name = Arm(posture=posture).name  # type: ignore[arg-type]
        if len(measured.where(arm_name, attack=NONE)):
            gone = lost(measured, arm_name, NONE)
            yield Verdict(
                criterion=f"{posture}: without attackers at most {most:.0%} of the lessons are lost",
                met=gone <= most,
                told=f"{gone:.1%} lost",
            )


def _bound(measured: Measured, arm: Arm, *, share: float, lost_at_most: float) -> Verdict:
    """Decide what is shown, lost and destroyed at most on an arm."""
    attacks = attacks_on(measured, arm.name)
    broken = []
    for attack in attacks:
        figures = {
            "harmful": high(measured, arm.name, attack, "share"),
            "lost": lost(measured, arm.name, attack),
        }
        destroyed = high(measured, arm.name, attack, "destroyed")
        if figures["harmful"] > share or figures["lost"] > lost_at_most or destroyed:
            told = ", ".join(f"{figure:.0%} {name}" for name, figure in figures.items() if figure > 0)
            broken.append(f"{attack} ({', '.join(filter(None, (told, f'{destroyed:g} destroyed')))})")
    harmful = f"at most {share:.0%} of what is shown is harmful, " if share < 1 else ""
    criterion = f"{arm.name}: {harmful}at most {lost_at_most:.0%} of the lessons are lost, none is destroyed"
    word = f"in {len(attacks) - len(broken)} of {len(attacks)} attacks"
    missed = f"; not in {', '.join(broken)}" if broken else ""
    return Verdict(criterion=criterion, met=bool(attacks) and not broken, told=word + missed)


def report_on(measured: Measured) -> Report:
    """Return the tables of all runs and the verdicts."""
    tables = (
        Table(title="The worst of each posture", columns=WORST, rows=tuple(worst(measured))),
        Table(title="All attacks", columns=COLUMNS, rows=tuple(rows(measured))),
    )
    panel = Panel(
        title="harmful share", x="attack, in the table's order", y="share", series=_series(measured)
    )
    return Report(tables=tables, verdicts=tuple(verdicts(measured)), panels=(panel,))


def _series(measured: Measured) -> tuple[Series, ...]:
    return tuple(
        Series(
            name=arm,
            points=tuple(
                (float(n), measured.where(arm, attack=attack).spread("share"))
                for n, attack in enumerate(attacks_on(measured, arm))
            ),
            style="points",
        )
        for arm in measured.arms()
    )
