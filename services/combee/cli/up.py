"""``combee up``: everything on this machine until Ctrl-C."""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from combee.cli.console import remark
from combee.ports import FatalError
from combee.runtime.settings import Settings, load_settings

GATEWAY_NEEDS = ("fastapi", "uvicorn", "sse_starlette")
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee up --simulated")(up)


def up(
    *,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="use the stand-in model (a simulation)")
    ] = False,
    model: Annotated[str | None, typer.Option(help="such as openai/gpt-4.1-mini or ollama/llama3")] = None,
    base_url: Annotated[str | None, typer.Option(help="any OpenAI-compatible server")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers; empty: embedded")] = None,
    scan_workers: Annotated[int, typer.Option(min=1, help="processes of the scan service")] = 1,
    gateway: Annotated[
        bool, typer.Option(help="serve HTTP and the dashboard, where their extras are installed")
    ] = True,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="health and metrics from this port on; 0, default: free ports"),
    ] = None,
) -> None:
    """Run the broker (unless one is configured), all services and the gateway; restart what ends; one log."""
    settings = load_settings(
        model="simulated" if simulated else model,
        base_url=base_url,
        bootstrap_servers=bootstrap_servers,
        metrics_port=metrics_port,
    )
    if settings.worker.metrics_port is None:
        settings = replace(settings, worker=settings.worker.model_copy(update={"metrics_port": 0}))
    from combee.compose import NO_MODEL  # noqa: PLC0415 - --help stays quick

    if settings.model.model is None:
        raise FatalError(NO_MODEL)
    asyncio.run(_up(settings, _fronts(wanted=gateway), simulated=simulated, scan_workers=scan_workers))


def _fronts(*, wanted: bool) -> tuple[str, ...]:
    """Return what to run beside the services, as far as it is installed."""
    from combee.compose import FRONTS  # noqa: PLC0415 - --help stays quick

    if wanted and all(find_spec(name) for name in GATEWAY_NEEDS):
        return tuple(FRONTS)
    if wanted:
        remark("no gateway: pip install 'combee[gateway]' adds HTTP, 'combee[dashboard]' the dashboard")
    return ()


async def _up(settings: Settings, fronts: tuple[str, ...], *, simulated: bool, scan_workers: int) -> None:
    from combee.cli.log import open_log  # noqa: PLC0415
    from combee.cli.stack import UP, StackOptions, model_environment, sole_stack, stack  # noqa: PLC0415
    from combee.compose import ROLES  # noqa: PLC0415

    console = Console(stderr=True, highlight=False)
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    lines = _Lines(console)
    with tempfile.TemporaryDirectory(prefix="combee-up-", ignore_cleanup_errors=True) as folder:
        async with (
            sole_stack(settings, UP, Path(folder)) as tell_verbs,
            open_log(settings, told=lambda line: lines("broker", line)) as (_, bootstrap),
        ):
            tell_verbs({"bootstrap_servers": bootstrap})
            options = StackOptions(
                settings=settings,
                bootstrap_servers=bootstrap,
                folder=Path(folder),
                simulated=simulated,
                scan_workers=scan_workers,
                roles=(*ROLES, *fronts),
            )
            async with stack(options, lines) as supervisor:
                console.print(f"combee is up at {bootstrap}; Ctrl-C stops it")
                addresses = supervisor.addresses()
                state = {"workers": addresses, "simulated": simulated}
                if fronts:
                    state["http"] = served = (Path(folder) / "gateway.ready").read_text().strip()
                    console.print(f"HTTP and dashboard: {served}", soft_wrap=True)
                console.print("health (/healthz, /readyz) and metrics (/metrics):")
                for name, address in addresses.items():
                    console.print(f"  {name:>10}  {address}")
                if simulated:
                    state |= model_environment(supervisor)
                tell_verbs(state)
                await _first(stop, supervisor.failed())


async def _first(stop: asyncio.Event, failed: Coroutine[Any, Any, None]) -> None:
    """Wait for Ctrl-C, or raise what made a service impossible to run."""
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait()), asyncio.create_task(failed)]
    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    for task in done:
        task.result()


class _Lines:
    """Prints the lines of all services, each with its name in a colour of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours: dict[str, str] = {}

    def __call__(self, name: str, line: str) -> None:
        """Print one line."""
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        self._console.print(f"[{colour}]{name:>10}[/] {escape(line)}", soft_wrap=True)
