"""Options that several verbs share, and their shell completion."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any

import typer

from combee.adapters.ports import CombeeError, ConfigurationError, Log
from combee.assembly.local.stack_file import stack_servers
from combee.cli.playbook.lookup import labels
from combee.cli.shared.log import open_unchecked
from combee.cli.shared.settings import of_running
from combee.core.formats.files import FORMATS, Format, is_name
from combee.core.names.identity import similar_name
from combee.log.history import all_labels, names, newest_playbook
from combee.process.settings.loading import load_settings
from combee_schemas.base import MAX_PLAYBOOK_NAME, playbook_of
from combee_schemas.playbook import LATEST

LOOK_UP_S = 3.0
PREFIX = re.compile(r"[A-Za-z0-9._-]{1,80}")


def checked_name(value: str) -> str:
    """Return a playbook's name, or refuse it as wrong usage; a branch is none."""
    checked_line(value)
    if (playbook := playbook_of(value)) != value:
        raise ConfigurationError(
            f"{value} is a branch, which learns from the reflections of {playbook}: name {playbook} here"
        )
    return value


def checked_line(value: str) -> str:
    """Return the name of a playbook or of a branch, or refuse it as wrong usage."""
    if not is_name(value, line=True):
        raise ConfigurationError(
            f"{value!r} is not a playbook name: letters, digits and . _ - / (at most {MAX_PLAYBOOK_NAME}, each part"
            f" between slashes begins with a letter or digit), for a branch then @ and its name; how about"
            f" {similar_name(value)!r}?"
        )
    return value


def checked_prefix(value: str) -> str:
    """Return a topic prefix, or refuse it as wrong usage."""
    if not PREFIX.fullmatch(value):
        raise typer.BadParameter(f"{value!r} is not a topic prefix: letters, digits and . _ - (at most 80)")
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


# ---- completion: names and labels, if a broker runs already and answers at once


def line_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the playbooks and branches that begin with ``incomplete``."""
    return _offered(ctx, names, incomplete)


def playbook_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the playbooks that begin with ``incomplete``."""
    return [name for name in line_names(ctx, incomplete) if playbook_of(name) == name]


def branch_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the branches that begin with ``incomplete``."""
    return [name for name in line_names(ctx, incomplete) if playbook_of(name) != name]


def places(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the result of ``refs``, and the playbook's branches."""
    name = str(ctx.params.get("name"))
    lines = [
        line
        for line in line_names(ctx, incomplete)
        if playbook_of(line) == playbook_of(name) and line != name
    ]
    return [*refs(ctx, incomplete), *lines]


def refs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the playbook's labels that begin with ``incomplete``, its newest version, and ``latest``."""
    name = str(ctx.params.get("name"))

    async def known(log: Log) -> Iterable[str]:
        newest = await newest_playbook(log, name)
        numbers = range(newest.version, 0, -1) if newest else ()
        return LATEST, *(await labels(log)).get(name, {}), *map(str, numbers)

    return _offered(ctx, known, incomplete)


def label_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the labels of any playbook that begin with ``incomplete``."""

    async def known(log: Log) -> Iterable[str]:
        return dict.fromkeys(label.label for label in await all_labels(log))

    return _offered(ctx, known, incomplete)


def _offered(
    ctx: typer.Context, find: Callable[[Log], Awaitable[Iterable[str]]], incomplete: str
) -> list[str]:
    """Return completions from the log; none, silently, where reading it is slow or fails."""
    with suppress(CombeeError, TimeoutError):
        return [name for name in asyncio.run(_known(ctx.params, find)) if name.startswith(incomplete)]
    return []


async def _known(given: dict[str, Any], find: Callable[[Log], Awaitable[Iterable[str]]]) -> list[str]:
    settings, _ = of_running(load_settings(bootstrap_servers=given.get("bootstrap_servers")))
    servers = settings.kafka.bootstrap_servers or stack_servers(settings)
    if servers is None:
        return []  # completion does not start a broker
    async with asyncio.timeout(LOOK_UP_S), open_unchecked(settings, servers) as log:
        return list(await find(log))


# ---- options

Everything = Annotated[bool, typer.Option("--all", help="include proposed entries (COMBEE_PROBATION)")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON document on standard output")]
Servers = Annotated[
    str | None,
    typer.Option(
        help="Kafka brokers; else COMBEE_BOOTSTRAP_SERVERS, else the 'combee up' that runs here, else an embedded"
        " broker for this command"
    ),
]
DeclaredSource = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="name of the source; COMBEE_SOURCE_SECRET, or the file in COMBEE_SOURCE_SECRET_FILE, authenticates it"
        " [COMBEE_SOURCE]",
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        help="the playbook, such as support/refunds, or a branch of it, such as support/refunds@exp",
        callback=checked_line,
        autocompletion=line_names,
    ),
]
MaybeName = Annotated[
    str | None,
    typer.Argument(
        help="only this playbook or branch",
        callback=lambda value: value and checked_line(value),
        autocompletion=line_names,
    ),
]
PlaybookArgument = Annotated[
    str,
    typer.Argument(
        help="the playbook, such as support/refunds", callback=checked_name, autocompletion=playbook_names
    ),
]
MaybePlaybook = Annotated[
    str | None,
    typer.Argument(
        help="only this playbook",
        callback=lambda value: value and checked_name(value),
        autocompletion=playbook_names,
    ),
]
Ref = Annotated[str, typer.Argument(help="a version's number, a label or latest", autocompletion=refs)]
CommandId = Annotated[
    str | None, typer.Option("--id", help="id of this command; a repeat with the same id does nothing")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0, help="maximum wait for the effect (s)")]
FormOrNone = Annotated[
    str | None, typer.Option("--format", help="ace, gepa, json, kayba, md or skill", callback=checked_form)
]
Label = Annotated[
    str | None, typer.Option(help="the version that this label points at", autocompletion=label_names)
]
Model = Annotated[str | None, typer.Option(help="such as openai/gpt-4.1-mini or ollama/llama3")]
BaseUrl = Annotated[str | None, typer.Option(help="any OpenAI-compatible server")]
Simulated = Annotated[bool, typer.Option("--simulated", help="use the stand-in model (a simulation)")]
Version = Annotated[int | None, typer.Option(min=1, help="this version instead of the newest")]
