"""``combee branch``: make a branch of a playbook, or list branches."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from combee.adapters.ports import Log
from combee.cli.branch import adopt
from combee.cli.playbook.lookup import missing_playbook
from combee.cli.playbook.view import print_version
from combee.cli.shared.console import output, print_json, print_whole, remark
from combee.cli.shared.log import lines_now, open_log
from combee.cli.shared.options import AsJson, CommandId, Servers, Timeout, checked_name, playbook_names
from combee.cli.shared.sending import carry_out
from combee.cli.shared.settings import deployed_settings
from combee.core.playbook.retention import percent
from combee.log.commands.playbook import Commands, PreparedCommand
from combee.log.history import History
from combee.log.inspection.branches import SideBySide
from combee.log.reports.branch import branch_report, branch_text
from combee.log.reports.cost import pause_texts
from combee.log.reports.status import BranchStatus, branch_status
from combee.process.settings.loading import Settings
from combee_schemas.plan import BranchSettings

SUMMARY = "Fork a playbook to learn with other settings; adopt it."
FORK = "fork"
SETTING_NAMES = ", ".join(BranchSettings.model_fields)


class WithDefault(TyperGroup):
    """``branch`` itself forks or lists, unless the name of a further verb follows."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default verb in front."""
        further = args[0] if args else ""
        return super().parse_args(ctx, args if further in self.commands else [FORK, *args])


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    branches = typer.Typer(cls=WithDefault, help=SUMMARY)
    example = "Example: combee branch support/refunds --as small --set batch_size=10"
    branches.command(FORK, epilog=f"{example}; later: combee branch adopt support/refunds@small")(fork)
    adopt.register(branches)
    app.add_typer(branches, name="branch")


def _offered(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return playbooks, and the further verb."""
    return [*(["adopt"] if "adopt".startswith(incomplete) else []), *playbook_names(ctx, incomplete)]


def fork(
    name: Annotated[
        str | None,
        typer.Argument(
            help="the playbook to fork, or whose branches are listed; without it, all branches",
            callback=lambda value: value and checked_name(value),
            autocompletion=_offered,
        ),
    ] = None,
    *,
    as_: Annotated[
        str | None, typer.Option("--as", help="make a branch of this name; without it branches are listed")
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help=f"a setting of the branch: {SETTING_NAMES}"),
    ] = None,
    command_id: CommandId = None,
    timeout: Timeout = 120.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Fork a playbook to learn with other settings; adopt it.

    NAME@BRANCH learns from NAME's reflections with its own settings. Without --as branches are listed.

    'combee branch adopt NAME@BRANCH' publishes a branch's entries as the playbook's next version.
    """
    if as_ is None:
        if own or command_id:
            raise typer.BadParameter("--set and --id are for a new branch: name it with --as")
        _list(deployed_settings(bootstrap_servers=bootstrap_servers), name, as_json=as_json)
        return
    if name is None:
        raise typer.BadParameter("name the playbook that the branch is made of")
    settings = _settings(own or [])

    async def decide(_log: Log, commands: Commands) -> PreparedCommand:
        return await commands.branch(name, as_, settings, command_id=command_id)

    change = asyncio.run(carry_out(name, decide, timeout_s=timeout, servers=bootstrap_servers))
    made = change.playbook
    if as_json:
        row = {"name": made.name, "version": made.version, "branch": branch_report(made.branch)}
        print_json({**row, "changed": change.changed})
        return
    print_version(made, changed=change.changed)
    remark(f"it learns from now on: 'combee branch {name}' compares it with {name}")


def _settings(given: list[str]) -> dict[str, str]:
    """Return ``key=value`` by key; the command checks the keys."""
    parts = [text.partition("=") for text in given]
    if wrong := [key for key, sign, _ in parts if not sign]:
        raise typer.BadParameter(f"{wrong[0]!r} is not KEY=VALUE, such as batch_size=10")
    return {key.strip(): value.strip() for key, _, value in parts}


def _list(settings: Settings, name: str | None, *, as_json: bool) -> None:
    rows = asyncio.run(_rows(settings, name))
    if as_json:
        print_json(rows)
        return
    if any(row.branch for row in rows):
        print_whole(_table(rows))
        for line in pause_texts({row.name: row.paused for row in rows}):
            output().print(line, style="yellow", soft_wrap=True)
    else:
        whose = f"{name} has no branches" if name else "no branches yet"
        output().print(f"{whose}; 'combee branch {name or 'NAME'} --as BRANCH' makes one", markup=False)


async def _rows(settings: Settings, name: str | None) -> list[BranchStatus]:
    async with open_log(settings) as (log, _):
        known = await lines_now(log, settings)
        lines = await SideBySide(History(log)).lines(known.snapshots, name)
        if name and not lines:
            raise await missing_playbook(log, name)
    return [branch_status(line, known.snapshots, known.today[line.playbook.name]) for line in lines]


def _table(rows: Iterable[BranchStatus]) -> Table:
    """Return playbook and branches side by side; reflections and tokens count from the fork."""
    table = Table("line", "forked from", "version", "entries", "versions", "reflections", box=None)
    for title in ("calls", "tokens", "retention", "omitted", "tokens today"):
        table.add_column(title)
    for row in rows:
        table.add_row(
            *(row.name, branch_text(row.branch), str(row.version), row.entries_text),
            *(str(count) for count in (row.versions, row.reflections, row.model_calls)),
            f"{row.tokens['in'] + row.tokens['out']:,}",
            *(percent(row.retention), percent(row.omitted), row.spend.text),
        )
    return table
