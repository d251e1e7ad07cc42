"""``combee controller NAME``: the batch size that stands, why, and the delays behind it."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from combee.cli.console import clean, output, print_json
from combee.cli.controller.plot import draw, drawn
from combee.cli.options import AsJson, Name, Servers
from combee.cli.playbook.lookup import newest_playbooks, whole
from combee.clock import moment
from combee.core.sizing.plateau import PowerLaw, fitted
from combee.ports import FatalError
from combee.settings.loading import Settings, load_settings
from combee_schemas import topics
from combee_schemas.control import BatchSize


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee controller support/refunds --png delays.png")(controller)


def controller(
    name: Name,
    *,
    png: Annotated[
        Path | None, typer.Option(help="draw the delays into this file (needs matplotlib)")
    ] = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show which batch size the controller has chosen for a playbook, and what it rests on."""
    stands = asyncio.run(_standing(load_settings(bootstrap_servers=bootstrap_servers), name))
    law = fitted(stands)
    if png is not None:
        drawn(stands, law, png)
    if as_json:
        print_json(as_dict(stands, law))
    else:
        _print(stands, law)


async def _standing(settings: Settings, name: str) -> BatchSize:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick

    async with open_log(settings) as (log, _):
        found = list(topics.BATCH_SIZES.under(name, await whole(log, topics.BATCH_SIZES)))
        if found:
            return found[-1]
        known = await newest_playbooks(log)
    if name in known:
        raise FatalError(
            f"nobody has decided on a batch size for {name} yet: is 'combee worker control' running?"
        )
    raise FatalError(f"there is no playbook {name}; there are: {', '.join(known) or 'none yet'}")


def as_dict(stands: BatchSize, law: PowerLaw | None) -> dict[str, Any]:
    """Return the decision for programs."""
    chosen = stands.model_dump(include={"playbook", "batch_size", "policy", "phase", "reason", "numbers"})
    return {
        **chosen,
        "observations": [one.model_dump() for one in stands.observations],
        "fit": {"a": law.a, "alpha": law.alpha, "r_squared": law.r_squared} if law else None,
        "waiting": stands.waiting,
        "decided_at_ms": stands.decided_at_ms,
    }


def _print(stands: BatchSize, law: PowerLaw | None) -> None:
    console = output()
    since = f" since {moment(stands.decided_at_ms)} UTC" if stands.decided_at_ms else ""
    console.print(
        f"{stands.playbook}: batch size {stands.batch_size} ({stands.policy}, {stands.phase}){since}"
    )
    console.print(clean(stands.reason), markup=False, soft_wrap=True)
    for name, value in stands.numbers.items():
        console.print(f"  {clean(name):<16} {value:,.4g}", markup=False)
    for one in stands.observations:
        expected = f"; by the fit {law.delay_s(one.batch_size):.2f} s" if law else ""
        console.print(f"  a batch of {one.batch_size} took {one.delay_s:.2f} s{expected}", markup=False)
    if len(stands.observations) > 1:
        typer.echo(draw(stands, law))
