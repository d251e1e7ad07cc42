"""``combee review``: what a label would say anew, and the label moved to it if you agree."""

import asyncio
from typing import Annotated

import typer

from combee.cli.playbook.diff import as_document, compared, lines
from combee.cli.playbook.labels import checked_label, move_label
from combee.cli.playbook.lookup import find_version, labels, resolve_version
from combee.cli.shared.console import confirmed, output, print_json, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Name, Patience, Ref, Servers, label_names
from combee.core.playbook.comparison import Comparison
from combee.core.playbook.versions import empty
from combee.settings.loading import Settings, load_settings
from combee_schemas.playbook import LATEST


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee review support/refunds --label production")(review)


def review(
    name: Name,
    version: Ref = LATEST,
    *,
    label: Annotated[
        str,
        typer.Option(help="what agents read by name", callback=checked_label, autocompletion=label_names),
    ] = "production",
    yes: Annotated[bool, typer.Option("--yes", help="move the label without asking")] = False,
    timeout: Patience = 30.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Show what a version says otherwise than a label does, and move the label there if you agree."""
    settings = load_settings(bootstrap_servers=bootstrap_servers)
    comparison = asyncio.run(_compared(settings, name, label, version))
    if not as_json:
        for line in lines(comparison):
            output().print(line, soft_wrap=True)
    question = f"let {label} point at version {comparison.after}?"
    agreed = comparison.before != comparison.after and (yes or (not as_json and confirmed(question)))
    if agreed:
        asyncio.run(move_label(name, label, str(comparison.after), None, timeout, bootstrap_servers))
    if as_json:
        print_json({"label": label, "promoted": agreed, **as_document(comparison)})
    elif agreed:
        output().print(f"{name} {label} → version {comparison.after}", markup=False)
    else:
        remark(f"{label} stays where it is; 'combee why ENTRY' tells what taught an entry")


async def _compared(settings: Settings, name: str, label: str, ref: str) -> Comparison:
    async with open_log(settings) as (log, _):
        newer = await resolve_version(log, name, ref)
        at = (await labels(log)).get(name, {}).get(label)
        return await compared(log, await find_version(log, name, at) if at else empty(name), newer)
