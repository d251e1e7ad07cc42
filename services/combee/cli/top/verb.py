"""``combee top``: a live view in one screen of a terminal."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.live import Live as Screen

from combee.adapters.clock import SystemClock
from combee.cli.shared.console import output, print_json
from combee.cli.shared.log import open_log
from combee.cli.shared.options import AsJson, Servers
from combee.cli.shared.settings import deployed_settings
from combee.cli.top.view import fitted, frame
from combee.core.names.tenants import Tenants
from combee.log.inspection.live import Live
from combee.process.settings.loading import Settings
from combee.process.worker.session import together

CURRENT_S = 30.0
FRAME_S = 0.1
"""Minimum time between frames, in seconds."""
QUIT = ("q", "Q")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee top --once")(top)


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="print one frame and end")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=60, help="maximum time between refreshes (s); changes show at once")
    ] = 1.0,
    bootstrap_servers: Servers = None,
    as_json: AsJson = False,
) -> None:
    """Watch lags, windows, batches, retention and cost; q quits.

    It also shows the running batch's tree, batch sizes with their reasons, and versions.
    """
    settings = deployed_settings(bootstrap_servers=bootstrap_servers)
    once = once or as_json or not sys.stdout.isatty()
    try:
        asyncio.run(_top(settings, interval, once=once, as_json=as_json))
    except KeyboardInterrupt:
        return


async def _top(settings: Settings, interval: float, *, once: bool, as_json: bool) -> None:
    clock = SystemClock()
    async with open_log(settings) as (log, servers):
        live = Live(
            log,
            clock,
            batch_size=settings.batch.batch_size,
            spending=settings.spend.caps(),
            tenants=Tenants(settings.tenants.limits()),
        )

        def seen() -> RenderableType:
            shown, screen = live.picture.snapshot(clock.now_ms()), output()
            prefix = settings.kafka.topic_prefix
            if once:
                return frame(shown, broker=servers, prefix=prefix, width=screen.width)
            return fitted(shown, screen, broker=servers, prefix=prefix)

        async def show() -> None:
            await live.wait_current(CURRENT_S)
            async with asyncio.timeout(CURRENT_S):
                while not (live.picture.snapshot(0).stages or live.picture.snapshot(0).unreadable):
                    await live.changed(live.picture.revision, interval)
            if as_json:
                print_json(live.picture.snapshot(clock.now_ms()).model_dump(mode="json"))
            elif once:
                output().print(seen())
            else:
                await _screen(live.changed, seen, interval)

        await together(live.run(), show())


async def _screen(
    changed: Callable[[int, float], Coroutine[Any, Any, int]],
    seen: Callable[[], RenderableType],
    interval_s: float,
) -> None:
    """Draw until the user presses q."""
    stop = asyncio.Event()
    revision = -1
    with (
        Screen(console=output(), screen=True, auto_refresh=False) as screen,
        _keys(lambda key: stop.set() if key in QUIT else None),
    ):
        while not stop.is_set():
            screen.update(seen(), refresh=True)
            await asyncio.sleep(FRAME_S)

            async def news() -> None:
                nonlocal revision
                revision = await changed(revision, interval_s)

            await together(news(), _set(stop))


@contextmanager
def _keys(on_key: Callable[[str], None]) -> Iterator[None]:
    """Call ``on_key`` with each pressed key, without echo; do nothing without a terminal."""
    import termios  # noqa: PLC0415 - Unix only
    import tty  # noqa: PLC0415 - the same

    if not sys.stdin.isatty():
        yield
        return
    source, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(source)
    tty.setcbreak(source)
    loop.add_reader(source, lambda: on_key(os.read(source, 1).decode(errors="replace")))
    try:
        yield
    finally:
        loop.remove_reader(source)
        termios.tcsetattr(source, termios.TCSADRAIN, before)


async def _set(event: asyncio.Event) -> None:
    await event.wait()
