"""What a shell offers after TAB: names and labels, where a broker runs already and answers at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import typer

from combee.ports import CombeeError, Log

PATIENCE_S = 3.0


def playbook_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the playbooks that begin so."""

    async def names(log: Log) -> Iterable[str]:
        from combee.cli.playbook.lookup import newest_playbooks  # noqa: PLC0415 - --help stays quick

        return await newest_playbooks(log)

    return _offered(ctx, names, incomplete)


def refs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the labels of the playbook on the line that begin so, its newest version, and ``latest``."""
    name = str(ctx.params.get("name"))

    async def known(log: Log) -> Iterable[str]:
        from combee.cli.playbook.lookup import labels, newest_playbook  # noqa: PLC0415 - --help stays quick
        from combee_schemas.playbook import LATEST  # noqa: PLC0415

        newest = await newest_playbook(log, name)
        numbers = range(newest.version, 0, -1) if newest else ()
        return LATEST, *(await labels(log)).get(name, {}), *map(str, numbers)

    return _offered(ctx, known, incomplete)


def label_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the labels of any playbook that begin so."""

    async def known(log: Log) -> Iterable[str]:
        from combee.cli.playbook.lookup import all_labels  # noqa: PLC0415 - --help stays quick

        return dict.fromkeys(label.label for label in await all_labels(log))

    return _offered(ctx, known, incomplete)


def _offered(
    ctx: typer.Context, find: Callable[[Log], Awaitable[Iterable[str]]], incomplete: str
) -> list[str]:
    """Return what the log knows; nothing, and no noise, where that is not cheap."""
    with suppress(CombeeError, TimeoutError):
        return [one for one in asyncio.run(_found(ctx.params, find)) if one.startswith(incomplete)]
    return []


async def _found(given: dict[str, Any], find: Callable[[Log], Awaitable[Iterable[str]]]) -> list[str]:
    from combee.cli.log import open_log  # noqa: PLC0415 - --help stays quick
    from combee.local.stack_file import stack_is_running  # noqa: PLC0415
    from combee.settings.loading import load_settings  # noqa: PLC0415

    settings = load_settings(bootstrap_servers=given.get("bootstrap_servers"))
    if settings.kafka.bootstrap_servers is None and not stack_is_running(settings):
        return []  # a broker is not started for a TAB
    async with asyncio.timeout(PATIENCE_S), open_log(settings) as (log, _):
        return list(await find(log))
