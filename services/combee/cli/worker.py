"""``combee worker ROLE``: one service in the foreground."""

import asyncio
import gc
from typing import Annotated

import structlog
import typer

from combee.adapters.ports import CombeeError, ConfigurationError
from combee.assembly import compose
from combee.assembly.backends import embedding_address, known_sources
from combee.assembly.local.deployment import beside, deployment
from combee.assembly.local.preflight import require_answer, require_model
from combee.assembly.local.supervisor import die_with_parent
from combee.cli.shared.console import FAILED, USAGE
from combee.process.settings.loading import Settings, load_settings
from combee.process.telemetry.logs import configure_logs

logger = structlog.get_logger()

ASKING = ("scan", "reflect")
"""Roles that call the model."""
COLLECT_AFTER = 10_000
"""Garbage collection threshold (net container allocations). Records hold hardly any cycles, so at
Python's 700 that took 8 % of scan's processor time; at this it takes 2 %."""
ROLES = (*compose.ROLES, *compose.JUDGING, *compose.FRONTS)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: combee worker scan")(worker)


def worker(
    roles: Annotated[
        list[str],
        typer.Argument(
            metavar="ROLE",
            help=f"one of {', '.join(ROLES)}; several with --check",
            autocompletion=lambda: list(ROLES),
        ),
    ],
    slot: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="number of this replica, if it has a fixed one, as in a StatefulSet",
        ),
    ] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Kafka brokers")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="serve /metrics, /healthz, /readyz here; 0: a free port"),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="start nothing: exit 0 if these services could start, else say why not"),
    ] = False,
    answers_from: Annotated[str | None, typer.Option(hidden=True)] = None,
    die_with_parent_: Annotated[bool, typer.Option("--die-with-parent", hidden=True)] = False,
) -> None:
    """Run one service until SIGTERM or Ctrl-C.

    It drains before it exits.
    """
    _require(roles, several=check)
    if check:
        asyncio.run(_check(roles, load_settings()))
        return
    (role,) = roles
    if die_with_parent_:
        die_with_parent()
    settings = load_settings(slot=slot, bootstrap_servers=bootstrap_servers, metrics_port=metrics_port)
    servers = settings.kafka.bootstrap_servers
    if servers is None:
        raise ConfigurationError(
            "a single worker needs a broker: set COMBEE_BOOTSTRAP_SERVERS, or use 'combee up',"
            " which starts everything on this machine"
        )
    if role in ASKING:
        if settings.model.model is None:
            settings = beside(deployment(settings), settings)
        require_model(settings.model)
    configure_logs(settings.worker.log_level, json=settings.worker.log_json, service=role)
    gc.set_threshold(COLLECT_AFTER)
    try:
        asyncio.run(compose.run_worker(role, settings, servers, answers_from=answers_from))
    except CombeeError as error:
        if not settings.worker.log_json:
            raise
        logger.critical("failed", error=str(error))
        raise typer.Exit(USAGE if isinstance(error, ConfigurationError) else FAILED) from error


def _require(roles: list[str], *, several: bool) -> None:
    for role in roles:
        if role not in ROLES:
            raise typer.BadParameter(f"no such role: {role}; choose one of {', '.join(ROLES)}")
    if len(roles) > 1 and not several:
        raise typer.BadParameter("a worker is one service: give one role, or --check")


async def _check(roles: list[str], settings: Settings) -> None:
    """Check whether these services could start with their settings; no broker is asked.

    Raises
    ------
    CombeeError
        If one could not; the message names the remedy.
    """
    if not set(ASKING).isdisjoint(roles):
        require_model(settings.model)
        await require_answer(settings.model)
    if not {"shuffle", "scan"}.isdisjoint(roles) and settings.model.embedding_model:
        embedding_address(settings.model)
    if not {"reflect", "shuffle", "control", "gateway"}.isdisjoint(roles):
        known_sources(settings.sources)
    if "gateway" in roles:
        compose.check_gateway(settings)
