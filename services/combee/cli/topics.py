"""``combee topics``: create, check and show the topics, and the rights on them."""

import asyncio
from typing import Annotated

import typer
from rich.table import Table

from combee.assembly.backends import connection, create_topics, nested_prefixes, topic_problems
from combee.cli.shared.console import FAILED, output, print_json, remark
from combee.cli.shared.log import open_broker
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.core.log.layout import wanted
from combee.core.log.rights import FORMATS, ROLES, granted
from combee.process.settings.loading import Settings, load_settings
from combee_schemas.base import DAY_MS

topics = typer.Typer(help="The topics: create, check, show, rights.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(topics, name="topics")


@topics.callback()
def group() -> None:
    """The topics: create, check, show, rights."""


@topics.command(epilog="Example: combee topics create --bootstrap-servers kafka:9092")
def create(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """Create missing topics, and let the broker set the timestamps of topics that agents write."""
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    created, problems = asyncio.run(_create(settings))
    if as_json:
        print_json({"created": created, "problems": problems})
    else:
        prefix = settings.kafka.topic_prefix
        output().print("\n".join(f"created {prefix}.{topic}" for topic in created) or "all topics were there")
    _fail_on(problems)


async def _create(settings: Settings) -> tuple[list[str], list[str]]:
    async with open_broker(settings) as servers:
        connected = connection(settings, servers)
        return await create_topics(settings, connected), await topic_problems(settings, connected)


@topics.command(epilog="Example: combee topics check --json")
def check(*, bootstrap_servers: Servers = None, as_json: AsJson = False) -> None:
    """Compare the topics with their required configuration; exit 1 if one is missing or wrong."""
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    problems = asyncio.run(_check(settings))
    if as_json:
        print_json({"problems": problems})
    elif not problems:
        output().print("all topics are as they should be")
    _fail_on(problems)


async def _check(settings: Settings) -> list[str]:
    async with open_broker(settings) as servers:
        connected = connection(settings, servers)
        if others := await nested_prefixes(connected):
            remark(f"{connected.prefix} and {', '.join(others)} overlap: grant rights topic by topic only")
        return await topic_problems(settings, connected)


def _fail_on(problems: list[str]) -> None:
    for problem in problems:
        remark(problem)
    if problems:
        raise typer.Exit(FAILED)


@topics.command(epilog="Example: combee topics show")
def show(*, as_json: AsJson = False) -> None:
    """Show the map of the system, in flow order; needs no broker."""
    settings = load_settings()
    rows = topic_map(settings)
    if as_json:
        print_json({"prefix": settings.kafka.topic_prefix, "topics": rows})
        return
    headers = ("topic", "key", "message", "partitions", "cleanup", "retention", "written by", "read by")
    table = Table(*headers, title=f"topics under {settings.kafka.topic_prefix}., in flow order", box=None)
    for row in rows:
        table.add_row(*(_cell(name, value) for name, value in row.items()))
    output().print(table)


@topics.command(epilog="Example: combee topics acls --principal agents=User:support")
def acls(
    *,
    format_: Annotated[
        str,
        typer.Option("--format", help=f"one of {', '.join(FORMATS)}", autocompletion=lambda: list(FORMATS)),
    ] = "kafka-acls",
    principal: Annotated[
        list[str] | None, typer.Option(help="ROLE=User:NAME, default User:combee-ROLE; may be repeated")
    ] = None,
) -> None:
    """Show the rights each role needs on a cluster that denies by default; needs no broker."""
    if format_ not in FORMATS:
        raise typer.BadParameter(f"no such format: {format_}; choose one of {', '.join(FORMATS)}")
    principals = dict(map(_principal, principal or ()))
    try:
        typer.echo(FORMATS[format_](granted(principals, load_settings().kafka.topic_prefix)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _principal(given: str) -> tuple[str, str]:
    role, _, who = given.partition("=")
    if role not in ROLES or not who.startswith("User:"):
        raise typer.BadParameter(f"{given}: write ROLE=User:NAME, with one of {', '.join(ROLES)}")
    return role, who


def topic_map(settings: Settings) -> list[dict[str, object]]:
    """Return every topic in flow order."""
    return [
        {
            "name": topic.topic.name,
            "key": topic.topic.key,
            "message": topic.topic.message.type,
            "partitions": topic.partitions,
            "cleanup": topic.topic.cleanup,
            "retention_ms": topic.topic.retention_ms if topic.topic.cleanup == "delete" else None,
            "written_by": list(topic.topic.written_by),
            "read_by": list(topic.topic.read_by),
        }
        for topic in wanted(settings.kafka.partitions, settings.kafka.scan_partitions)
    ]


def _cell(name: str, value: object) -> str:
    if name == "retention_ms":
        if not isinstance(value, int):
            return "newest per key"
        return "for ever" if value < 0 else f"{value // DAY_MS} days"
    return ", ".join(value) if isinstance(value, list) else str(value)
