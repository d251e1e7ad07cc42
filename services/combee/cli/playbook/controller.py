"""``combee playbook controller NAME``: the current batch size, its reason, and the delays behind it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from combee.adapters.clock import moment
from combee.adapters.ports import FatalError
from combee.cli.shared.console import output, print_json
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Name, Servers
from combee.cli.shared.plotting import library, new_figure, save_figure
from combee.cli.shared.settings import deployed_settings
from combee.core.batching.sizing.plateau import EPOCH, PowerLaw, epoch_s, fitted
from combee.core.text.forms import printable
from combee.log.history import newest_playbooks, whole
from combee.log.reports.controller import controller_report, size_text
from combee.process.settings.loading import Settings
from combee_schemas import topics
from combee_schemas.control import BatchSize

STEPS = 40
COLUMNS, ROWS = 72, 18
TITLE = "seconds per {:,} reflections, by batch size"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee playbook controller support/refunds --png delays.png")(controller)


def controller(
    name: Name,
    *,
    png: Annotated[
        Path | None, typer.Option(help="draw the delays into this file (needs matplotlib)")
    ] = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show the batch size that the controller chose for a playbook, and the delays behind it."""
    stands = asyncio.run(_standing(deployed_settings(bootstrap_servers=bootstrap_servers), name))
    law = fitted(stands)
    if png is not None:
        drawn(stands, law, png)
    if as_json:
        print_json(controller_report(stands, law))
    else:
        _print(stands, law)


async def _standing(settings: Settings, name: str) -> BatchSize:
    async with open_log(settings) as (log, _):
        batch_sizes = list(topics.BATCH_SIZES.under(name, await whole(log, topics.BATCH_SIZES)))
        if batch_sizes:
            return batch_sizes[-1]
        known = await newest_playbooks(log)
    if name in known:
        raise FatalError(f"no batch size has been chosen for {name} yet: is 'combee worker control' running?")
    raise FatalError(f"there is no playbook {name}; there are: {', '.join(known) or 'none yet'}")


def _print(stands: BatchSize, law: PowerLaw | None) -> None:
    console = output()
    since = f" since {moment(stands.decided_at_ms)} UTC" if stands.decided_at_ms else ""
    console.print(f"{stands.playbook}: {size_text(stands.batch_size, controller_report(stands, law))}{since}")
    console.print(printable(stands.reason), markup=False, soft_wrap=True)
    for name, value in stands.numbers.items():
        console.print(f"  {printable(name):<16} {value:,.4g}", markup=False)
    for observation in stands.observations:
        expected = f"; by the fit {law.delay_s(observation.batch_size):.2f} s" if law else ""
        console.print(
            f"  a batch of {observation.batch_size} took {observation.delay_s:.2f} s{expected}", markup=False
        )
    if len(stands.observations) > 1:
        typer.echo(draw(stands, law))


# ---- pictures


def _points(stands: BatchSize) -> tuple[list[int], list[float]]:
    sizes = [observation.batch_size for observation in stands.observations]
    return sizes, [
        epoch_s(observation.batch_size, observation.delay_s) for observation in stands.observations
    ]


def _curve(law: PowerLaw, sizes: Sequence[int], chosen: int) -> tuple[list[float], list[float]]:
    low, high = min(*sizes, chosen), max(*sizes, chosen)
    at = [low * (high / low) ** (step / (STEPS - 1)) for step in range(STEPS)]
    return at, [law.at(reflections) for reflections in at]


def draw(stands: BatchSize, law: PowerLaw | None) -> str:
    """Return a plot in characters.

    Raises
    ------
    FatalError
        If plotext is not installed.
    """
    plot = library("plotext")
    plot.clear_figure()
    plot.theme("clear")
    plot.plotsize(COLUMNS, ROWS)
    plot.title(TITLE.format(EPOCH))
    sizes, seconds = _points(stands)
    if law is not None:
        plot.plot(*_curve(law, sizes, stands.batch_size), marker="dot", label="fit")
        plot.scatter([stands.batch_size], [law.at(stands.batch_size)], marker="X", label="chosen")
    plot.scatter(sizes, seconds, marker="o", label="measured")
    return str(plot.build())


def drawn(stands: BatchSize, law: PowerLaw | None, path: Path) -> None:
    """Write the same as a PNG.

    Raises
    ------
    FatalError
        If matplotlib is not installed, or the file cannot be written.
    """
    figure = new_figure(7, 4.5)
    axes = figure.add_subplot()
    sizes, seconds = _points(stands)
    axes.scatter(sizes, seconds, color="black", zorder=3, label="measured")
    if law is not None and sizes:
        fitted = f"fit: α {law.alpha:.2f}, R² {law.r_squared:.2f}"
        axes.plot(*_curve(law, sizes, stands.batch_size), label=fitted)
    axes.axvline(stands.batch_size, color="tab:red", linestyle="--", label=f"chosen: {stands.batch_size}")
    title = f"{stands.playbook}: {TITLE.format(EPOCH)}"
    # Linear axes show where the curve flattens.
    axes.set(title=title, xlabel="batch size", ylabel="seconds", ylim=(0, None))
    axes.legend()
    save_figure(figure, path)
