"""Options that several verbs share."""

from typing import Annotated

import typer

from combee.cli.completing import label_names, playbook_names, refs
from combee.core.formats.files import FORMATS, Format, is_name, similar_name
from combee.ports import ConfigurationError


def checked_name(value: str) -> str:
    """Return a playbook's name, or refuse it as wrong usage."""
    if not is_name(value):
        raise ConfigurationError(
            f"{value!r} is no playbook name: letters, digits and . _ - / (at most 200, the first a letter or"
            f" digit); how about {similar_name(value)!r}?"
        )
    return value


def as_format(value: str) -> Format:
    """Return a format, or refuse it as wrong usage."""
    for form in FORMATS:
        if form == value:
            return form
    raise typer.BadParameter(f"no such format: {value}; choose one of {', '.join(FORMATS)}")


def checked_form(value: str | None) -> str | None:
    """Return the name of a format, or refuse it as wrong usage."""
    return value if value is None or value == "auto" else as_format(value)


AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document on standard output")]
Servers = Annotated[
    str | None,
    typer.Option(help="Kafka brokers; else COMBEE_BOOTSTRAP_SERVERS, else this user's embedded broker"),
]
Name = Annotated[
    str,
    typer.Argument(
        help="the playbook, such as support/refunds", callback=checked_name, autocompletion=playbook_names
    ),
]
MaybeName = Annotated[
    str | None,
    typer.Argument(
        help="only this playbook",
        callback=lambda one: one and checked_name(one),
        autocompletion=playbook_names,
    ),
]
Ref = Annotated[str, typer.Argument(help="a version's number, a label or latest", autocompletion=refs)]
CommandId = Annotated[str | None, typer.Option("--id", help="of this command: a repeat does nothing")]
Patience = Annotated[float, typer.Option("--timeout", min=0, help="wait so long for the effect (s)")]
FormOrNone = Annotated[
    str | None, typer.Option("--format", help="ace, gepa, json, kayba, md or skill", callback=checked_form)
]
Label = Annotated[
    str | None, typer.Option(help="the version that this label points at", autocompletion=label_names)
]
Version = Annotated[int | None, typer.Option(min=1, help="this version instead of the newest")]
