"""``combee playbook``: list and show playbooks, and the verbs that compare and change them."""

import asyncio
from typing import Annotated

import typer

from combee.adapters.clock import SystemClock
from combee.cli.playbook import bisect, controller, cost, diff, edit, import_export, pause, undo, watch
from combee.cli.playbook import labels as label_verbs
from combee.cli.playbook.files import playbook_text
from combee.cli.playbook.lookup import check_one_version, chosen_version, find_version, labels
from combee.cli.playbook.view import (
    full_view,
    history_table,
    list_table,
    outcome_lines,
)
from combee.cli.shared.console import output, print_json
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Everything, FormOrNone, Label, Name, Servers, Version, as_format
from combee.cli.shared.settings import deployed_settings
from combee.core.evaluation.outcomes.report import OutcomesReport, outcomes_report
from combee.core.playbook.retention import warnings
from combee.core.playbook.shown import shown
from combee.core.playbook.side_by_side import in_order
from combee.log.history import History, newest_playbooks
from combee.log.inspection.outcomes import canaries, outcomes_of
from combee.log.reports.audit import VersionDetails, version_details
from combee.log.reports.status import ListedReport, listed_report
from combee.process.settings.loading import Settings
from combee_schemas.playbook import Playbook

playbook = typer.Typer(help="Read, compare, import, edit, label, undo playbooks.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(playbook, name="playbook")


@playbook.callback()
def group() -> None:
    """Read, compare, import, edit, label, undo playbooks."""


@playbook.command("list", epilog="Example: combee playbook list --json")
def list_(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """List all playbooks with their newest versions."""
    rows = asyncio.run(_list(deployed_settings(bootstrap_servers=bootstrap_servers)))
    if as_json:
        print_json(rows)
    else:
        output().print(list_table(rows) if rows else "no playbooks yet")


async def _list(settings: Settings) -> list[ListedReport]:
    async with open_log(settings) as (log, _):
        pointing = await labels(log)
        newest = await newest_playbooks(log)
    return [listed_report(newest[name], newest, pointing.get(name, {})) for name in in_order(newest)]


@playbook.command(epilog="Example: combee playbook show support/refunds --version 3 --format ace")
def show(
    name: Name,
    *,
    version: Version = None,
    label: Label = None,
    form: FormOrNone = None,
    everything: Everything = False,
    history: Annotated[bool, typer.Option("--history", help="list all versions instead")] = False,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show one version, the newest by default, or the list of versions."""
    if history and (everything or any(option is not None for option in (version, label, form))):
        raise typer.BadParameter(
            "--history lists all versions: it takes no --version, --label, --format or --all"
        )
    check_one_version(version, label)
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    if history:
        rows = asyncio.run(_history(settings, name))
        if as_json:
            print_json({"name": name, "versions": rows})
        else:
            output().print(history_table(rows))
        return
    playbook, outcomes = asyncio.run(_version(settings, name, version, label))
    if as_json:
        listed = playbook if everything else shown(playbook)
        of_runs = {"outcomes": outcomes.model_dump(mode="json")}
        print_json({**listed.model_dump(mode="json"), "warnings": warnings(playbook), **of_runs})
    elif form is not None:
        typer.echo(playbook_text(playbook, as_format(form), everything=everything), nl=False)
    else:
        output().print(
            full_view(playbook, everything=everything, budget_tokens=settings.playbook.playbook_tokens)
        )
        for line in outcome_lines(outcomes, playbook):
            output().print(line, soft_wrap=True)


async def _version(
    settings: Settings, name: str, version: int | None, label: str | None
) -> tuple[Playbook, OutcomesReport]:
    async with open_log(settings) as (log, _):
        playbook = await chosen_version(log, name, version, label)
        newest = await find_version(log, name)
        canary = (await canaries(log, SystemClock().now_ms())).get(name)
        return playbook, outcomes_report(name, await outcomes_of(log, name), newest.version, canary)


async def _history(settings: Settings, name: str) -> list[VersionDetails]:
    async with open_log(settings) as (log, _):
        rows = [version_details(version) async for version in History(log).between(name, 0)]
        if not rows:
            await find_version(log, name)
        return rows


for part in (diff, watch, import_export, edit, label_verbs, undo, pause, bisect, cost, controller):
    part.register(playbook)
