"""``combee up``: everything on this machine until Ctrl-C."""

import asyncio
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from combee.adapters.extras import pip_install
from combee.adapters.ports import FatalError, Log
from combee.assembly.compose import FRONTS, ROLES, judges
from combee.assembly.local.admin_key import AdminKey, admin_key, dashboard_link
from combee.assembly.local.deployment import BATCH_FLAGS, Deployment
from combee.assembly.local.extras import without
from combee.assembly.local.keys import known_here, with_keys
from combee.assembly.local.preflight import check, model_flag, require_data_dir, uses_stand_in
from combee.assembly.local.stack import StackOptions, model_environment, stack
from combee.assembly.local.stack_file import sole_stack
from combee.cli.shared.console import remark
from combee.cli.shared.log import open_log
from combee.cli.shared.options import BaseUrl, Model, Simulated
from combee.core.gate.gate import gates_of
from combee.log.history import all_labels
from combee.process.running import UP
from combee.process.settings.loading import Settings, load_settings

INFORMATION = ("[info ", '"level": "info"')
"""Marks of log lines at level info, as text and as JSON."""
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee up --simulated")(up)


def up(
    *,
    simulated: Simulated = False,
    model: Model = None,
    base_url: BaseUrl = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers; empty: embedded")] = None,
    scan_workers: Annotated[int, typer.Option(min=1, help="processes of the scan service")] = 1,
    gateway: Annotated[
        bool, typer.Option(help="serve HTTP and the dashboard, where their extras are installed")
    ] = True,
    keys: Annotated[
        bool,
        typer.Option(
            "--keys",
            help="require a key from everybody, so that sources are proven; 'combee key NAME' makes one",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="first port for health and metrics; 0, default: free ports"),
    ] = None,
) -> None:
    """Run Kafka, all services, HTTP and the dashboard here.

    It uses a configured Kafka instead of its own, restarts services that end, and merges their logs.
    """
    settings = load_settings(
        model=model_flag(simulated=simulated, model=model, base_url=base_url),
        base_url=base_url,
        bootstrap_servers=bootstrap_servers,
        metrics_port=metrics_port,
    )
    if settings.worker.metrics_port is None:
        settings = replace(settings, worker=settings.worker.model_copy(update={"metrics_port": 0}))
    simulated = uses_stand_in(settings.model, simulated=simulated)
    if keys:
        if settings.gateway.gateway_keys is not None:
            raise FatalError("COMBEE_GATEWAY_KEYS holds the keys: unset it, or start without --keys")
        admin = admin_key(settings)
        settings = with_keys(settings, admin)
        remark(f"everybody needs a key ('combee key NAME'); the admin's is in {admin.path}")
    settings = replace(settings, sources=known_here(settings))
    asyncio.run(_up(settings, _fronts(wanted=gateway), simulated=simulated, scan_workers=scan_workers))


def _fronts(*, wanted: bool) -> tuple[str, ...]:
    """Return the front-end roles to run with the services, as far as they are installed."""
    if wanted and not without("gateway"):
        return tuple(FRONTS)
    if wanted:
        remark(f"no gateway: {pip_install('gateway')} adds HTTP, {pip_install('dashboard')} the dashboard")
    return ()


async def _up(settings: Settings, fronts: tuple[str, ...], *, simulated: bool, scan_workers: int) -> None:
    console = Console(stderr=True, highlight=False)
    stop = asyncio.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    embedded = settings.kafka.bootstrap_servers is None
    lines = _Lines(console, wordy=settings.worker.log_level == "debug")
    if embedded:
        require_data_dir(settings)
    with tempfile.TemporaryDirectory(prefix="combee-up-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as opened:
            # Checked first: a second deployment would also find the first one's port in use.
            add_to_stack_file = await opened.enter_async_context(
                sole_stack(settings, UP, Path(folder), tell=remark)
            )
            await check(settings, simulated=simulated, gateway=bool(fronts))
            log, bootstrap = await opened.enter_async_context(
                open_log(settings, restarted=lambda line: lines("broker", line))
            )
            add_to_stack_file({"bootstrap_servers": bootstrap})
            key = await _admin_key(settings, log) if fronts else None
            options = StackOptions(
                settings=settings,
                bootstrap_servers=bootstrap,
                folder=Path(folder),
                simulated=simulated,
                scan_workers=scan_workers,
                roles=(*ROLES, *judges(settings), *fronts),
                gateway_keys=key.gateway_keys if key else None,
            )
            console.print(f"starting {len(options.roles)} services on Kafka at {bootstrap}", soft_wrap=True)
            async with stack(options, lines) as supervisor:
                where = model_environment(supervisor) if simulated else {}
                deployment = Deployment(
                    bootstrap_servers=bootstrap,
                    model=settings.model.model or "",
                    base_url=where.get("base_url", settings.model.base_url),
                    workers=supervisor.addresses(),
                    batch=settings.batch.model_dump(include=set(BATCH_FLAGS))
                    | {"batch_size": settings.sizing.fixed_size},
                )
                served = (Path(folder) / "gateway.ready").read_text().strip() if fronts else ""
                signed_in = await _signed_in(settings, served, key) if key else ()
                for line in (*banner(deployment, served), *signed_in):
                    console.print(line, markup=False, soft_wrap=True)
                lines.all()
                add_to_stack_file(asdict(deployment) | {"http": served})
                await _first(stop, supervisor.failed())


async def _admin_key(settings: Settings, log: Log) -> AdminKey | None:
    """Return the key for commands where a judge is on and the gateway has no keys; None: it needs none."""
    gateway = settings.gateway
    if gateway.gateway_keys is not None or gateway.gateway_keys_file is not None:
        return None
    if not settings.gates.all_judges and not gates_of(await all_labels(log)):
        return None
    try:
        return await asyncio.to_thread(admin_key, settings)
    except (OSError, ModuleNotFoundError) as error:
        remark(f"no key for commands over HTTP, which will refuse them: {error}")
        return None


async def _signed_in(settings: Settings, served: str, key: AdminKey) -> list[str]:
    """Return lines that explain how to send commands over HTTP and open the dashboard."""
    lines = [f"  admin key        {key.path} (a judge is on: commands over HTTP need it)"]
    if settings.gateway.dashboard and not without("dashboard"):
        try:
            link = await asyncio.to_thread(dashboard_link, served, key)
        except OSError as error:
            remark(str(error))
        else:
            lines.append(f"  dashboard        {link} (opens once, within 15 minutes)")
    return lines


async def _first(stop: asyncio.Event, failed: Coroutine[Any, Any, None]) -> None:
    """Wait for Ctrl-C, or raise the error of a service that cannot run."""
    waits: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait()), asyncio.create_task(failed)]
    done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    for task in done:
        task.result()


def banner(deployment: Deployment, served: str) -> Iterator[str]:
    """Yield the deployment's addresses; ``served`` is the gateway's, empty without one."""
    yield "combee is up; Ctrl-C stops it"
    if served:
        yield f"  HTTP, dashboard  {served}"
    yield f"  Kafka            {deployment.bootstrap_servers}"
    yield f"  model            {deployment.model_named}"
    workers = ", ".join(f"{name} {address}" for name, address in deployment.workers.items())
    yield f"  health, metrics  {workers}"


class _Lines:
    """Prints the log lines of all services, each with its name in its own colour.

    Information is hidden during the start unless ``wordy``; a failed service's file is quoted anyway.
    """

    def __init__(self, console: Console, *, wordy: bool = False) -> None:
        self._console = console
        self._colours: dict[str, str] = {}
        self._wordy = wordy

    def all(self) -> None:
        """Print everything from now on."""
        self._wordy = True

    def __call__(self, name: str, line: str) -> None:
        """Print one line."""
        if not self._wordy and any(mark in line for mark in INFORMATION):
            return
        colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
        self._console.print(f"[{colour}]{name:>10}[/] {escape(line)}", soft_wrap=True)
