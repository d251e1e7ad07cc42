"""``combee playbook convert``: between the formats of playbooks, without a broker."""

from pathlib import Path
from typing import Annotated

import typer

from combee.cli.options import AsJson, as_format, checked_form, checked_name
from combee.cli.playbook.files import deliver, load, stem


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee playbook convert playbook.txt --to json --out playbook.json")(convert)


def convert(
    file: Annotated[str, typer.Argument(help="the playbook to read; - reads standard input")],
    *,
    to: Annotated[str, typer.Option(help="ace, gepa, json, kayba, md or skill", callback=as_format)],
    from_: Annotated[
        str, typer.Option("--from", help="auto, ace, gepa, json, kayba, md or skill", callback=checked_form)
    ] = "auto",
    name: Annotated[
        str | None, typer.Option(help="name it so; else what the file says, else its name")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write it here instead of standard output")] = None,
    as_json: AsJson = False,
) -> None:
    """Convert a playbook; every entry is kept, in order, with or without counters as it was."""
    given = checked_name(name) if name is not None else None
    found, _ = load(file, None if from_ == "auto" else as_format(from_), name=stem(file))
    if given is not None:
        found = found.model_copy(update={"name": given})
    deliver(found, as_format(to), out, as_json=as_json)
