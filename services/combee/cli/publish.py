"""``combee publish``: write traces, reflections and outcomes from JSON lines into the log, without waiting."""

import asyncio
import concurrent.futures
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from combee.adapters.ports import Log
from combee.cli.playbook.files import STDIN, read_text
from combee.cli.shared.console import REJECTED, output, print_json, remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, DeclaredSource, Servers, checked_name, playbook_names
from combee.cli.shared.settings import deployed_settings
from combee.core.formats.intake import LineError, Sample, Unknown, ignored_text, lines_of, read_outcome
from combee.core.formats.items import read_items
from combee.core.names.sources import Signer, declared
from combee.process.settings.loading import Settings
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

CHUNK = 200
"""Maximum number of lines acknowledged together."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee publish runs.jsonl --playbook support/refunds")(publish)


def publish(
    file: Annotated[
        str,
        typer.Argument(
            help="JSON lines: traces, reflections, GEPA records or outcomes; - reads standard input"
        ),
    ],
    *,
    playbook: Annotated[
        str,
        typer.Option(
            help="the playbook that all lines are for", callback=checked_name, autocompletion=playbook_names
        ),
    ] = "default",
    source: DeclaredSource = None,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Publish lines; the same line twice counts once.

    It ends once all are acknowledged; 'combee learn' waits until they are applied.
    """
    settings = deployed_settings(bootstrap_servers=bootstrap_servers, source=source)
    where = "standard input" if file == STDIN else file
    lines: Iterable[str] = _standard_input() if file == STDIN else lines_of(read_text(file))
    counts = asyncio.run(_publish(settings, lines, playbook, where))
    published = {kind: counts[kind] for kind in ("traces", "reflections", "outcomes")}
    if as_json:
        print_json({"playbook": playbook, "published": published, "rejected": counts["rejected"]})
    else:
        counted = ", ".join(f"{count} {name}" for name, count in published.items())
        output().print(f"published {counted}; {counts['rejected']} lines rejected", markup=False)
    if counts["rejected"]:
        raise typer.Exit(REJECTED)


async def _publish(settings: Settings, lines: Iterable[str], playbook: str, where: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    reported: dict[str, Unknown] = {}
    async with open_log(settings) as (log, _):
        async for chunk in _chunks(lines):
            ignored: dict[str, Unknown] = {}
            items = list(_items(chunk, playbook, where, counts, ignored))
            await _send(log, items, counts, settings.sources.signer())
            # A stream may never end, so an ignored field is reported when it first appears.
            if news := {name: unknown for name, unknown in ignored.items() if name not in reported}:
                remark(f"{where}: {ignored_text(news)}")
                reported |= news
    return counts


def _standard_input() -> Iterator[str]:
    """Yield lines; one that is not UTF-8 is refused by itself, and the others are published."""
    return (line.decode(errors="surrogateescape") for line in sys.stdin.buffer)


async def _chunks(lines: Iterable[str]) -> AsyncIterator[Sequence[tuple[int, str]]]:
    """Yield chunks of numbered lines as they arrive; a thread reads, because reading may block."""
    queue: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue(CHUNK)
    loop = asyncio.get_running_loop()

    def put(line: tuple[int, str] | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    def read() -> None:
        with suppress(RuntimeError, concurrent.futures.CancelledError):  # the loop ended before the lines did
            for line in enumerate(lines, 1):
                put(line)
            put(None)

    # A daemon thread, because a blocking read must not keep the process alive after Ctrl-C.
    threading.Thread(target=read, daemon=True).start()
    chunk: list[tuple[int, str]] = []
    while (line := await queue.get()) is not None:
        chunk.append(line)
        if queue.empty() or len(chunk) == CHUNK:
            yield chunk
            chunk = []
    yield chunk


def _items(
    lines: Iterable[tuple[int, str]],
    playbook: str,
    file: str,
    counts: Counter[str],
    ignored: dict[str, Unknown],
) -> Iterator[Trace | Reflection | Outcome]:
    for number, line in lines:
        try:
            if (outcome := read_outcome(line, playbook, ignored)) is not None:
                yield outcome
                continue
        except LineError as error:
            counts["rejected"] += 1
            _refused(f"{file}:{number}", number, str(error))
            continue
        items, rejected = read_items([line], playbook, partial(_refused, f"{file}:{number}"), ignored)
        counts["rejected"] += rejected
        for item in items:
            if isinstance(item, Sample):
                counts["rejected"] += 1
                remark(f"{file}:{number}: a sample needs an agent to answer it: use 'combee learn'")
            else:
                yield item


def _refused(where: str, _line: int, why: str) -> None:
    remark(f"{where}: {why}")


async def _send(
    log: Log, items: Sequence[Trace | Reflection | Outcome], counts: Counter[str], signer: Signer | None
) -> None:
    sent = [declared(item, signer) for item in items]
    if sent:
        await log.produce(*sent)
    counts.update(record.topic for record in sent)
