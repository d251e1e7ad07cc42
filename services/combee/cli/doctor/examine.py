"""The checks of ``combee doctor``, in their order: settings and disk, broker, topics, services, model, workers.

Independent checks run concurrently; a check is skipped if one that it depends on has failed.
"""

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack

from pydantic import AliasChoices

from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.ports import CombeeError
from combee.assembly import backends
from combee.assembly.local.deployment import Deployment, complaints
from combee.assembly.local.stack_file import data_dir
from combee.cli.doctor import probes
from combee.cli.shared.log import open_broker
from combee.core.log.diagnosis import Check, failed, skipped
from combee.core.log.diagnosis.cluster import NONE_YET
from combee.core.log.diagnosis.surroundings import (
    judge_disk,
    judge_settings,
    judge_trust,
    judge_workers,
    strangers,
)
from combee.process.secret_files import SUFFIX
from combee.process.settings.group import NAMED_BY, file_values
from combee.process.settings.loading import GROUPS, Settings, environment, in_files, secrets
from combee.process.telemetry.logs import configure_logs
from combee.sdk.address import VARIABLES

READ_ELSEWHERE = ("COMBEE_JAVA", NAMED_BY, *VARIABLES)
PREFIX = "COMBEE_"
START_S = 90.0
"""Deadline for starting the embedded broker, which may have to be fetched."""
CLOSE_S = 2.0
SILENT = 100
"""Above every level of the logging library: a failure is reported once, as a check."""

ON_TOPICS = ("lag", "transactions", "dead letters", "batches", "retention", "branches")
EMBEDDINGS = "correct COMBEE_EMBEDDING_MODEL, _BASE_URL or _API_KEY; until then words alone are compared"
START_IT = (
    "start Kafka there, or correct COMBEE_BOOTSTRAP_SERVERS / --bootstrap-servers (and COMBEE_SECURITY_PROTOCOL,"
    " COMBEE_SASL_*, COMBEE_SSL_*, COMBEE_OAUTH_*); without an address Combee starts an embedded broker"
)


async def examine(settings: Settings, up: Deployment | None, timeout_s: float) -> list[Check]:
    """Run all checks; each takes at most ``timeout_s``, and starting an embedded broker START_S."""
    configure_logs("error", json=False, libraries=SILENT)
    checks = [*settings_checks(), trust_check(settings)]
    if settings.kafka.bootstrap_servers is None:
        checks.append(disk_check(settings))
    model = asyncio.ensure_future(
        probes.within(timeout_s, "model", lambda: probes.model(settings.model, timeout_s))
    )
    embeddings = asyncio.ensure_future(
        probes.within(timeout_s, "embeddings", lambda: probes.embeddings(settings.model), remedy=EMBEDDINGS)
    )
    checks += await _kafka(settings, timeout_s)
    if up is not None and (workers := up.workers):
        checks += await probes.within(timeout_s, "workers", lambda: worker_checks(workers))
    return checks + await model + await embeddings


async def _kafka(settings: Settings, timeout_s: float) -> list[Check]:
    if settings.kafka.bootstrap_servers is not None:
        return await _cluster(settings, settings.kafka.bootstrap_servers, timeout_s)
    async with AsyncExitStack() as opened:
        try:
            async with asyncio.timeout(START_S):
                servers = await opened.enter_async_context(open_broker(settings))
        except (CombeeError, TimeoutError) as error:
            says = str(error) or f"the embedded broker has not started within {START_S:.0f} s"
            check = Check(name="broker", verdict="fail", says=says, remedy=probes.RUN_AGAIN)
            return [check, *_skipped("the broker does not answer", "topics", "clock", *ON_TOPICS)]
        return await _cluster(settings, servers, timeout_s)


async def _cluster(settings: Settings, servers: str, timeout_s: float) -> list[Check]:
    connected = backends.connection(settings, servers)
    checks = await probes.within(timeout_s, "broker", lambda: probes.broker(connected), remedy=START_IT)
    if failed(checks):
        return checks + _skipped("the broker does not answer", "topics", "clock", *ON_TOPICS)
    layout, clock = await asyncio.gather(
        probes.within(timeout_s, "topics", lambda: probes.layout(settings, connected)),
        probes.within(timeout_s, "clock", lambda: probes.clock(connected)),
    )
    checks += layout + clock
    if failed(layout) or NONE_YET in layout:
        return checks + _skipped("the topics are not as they must be", *ON_TOPICS)
    return checks + await _flows(settings, connected, timeout_s)


async def _flows(settings: Settings, connected: Connection, timeout_s: float) -> list[Check]:
    log = KafkaLog(connected)
    try:
        return await probes.flows(log, settings, connected, timeout_s)
    finally:
        await asyncio.wait({asyncio.ensure_future(log.close())}, timeout=CLOSE_S)


def _skipped(because: str, *names: str) -> list[Check]:
    return [skipped(name, because) for name in names]


# ---- this machine


def settings_checks() -> list[Check]:
    """Look for unknown settings and for secrets in the file."""
    fields = {name: info for group in GROUPS.values() for name, info in group.model_fields.items()}
    known = [f"{PREFIX}{name.upper()}" for name in fields] + list(READ_ELSEWHERE)
    known += [f"{PREFIX}{name.upper()}{SUFFIX}" for name in in_files()]
    for info in fields.values():
        if isinstance(info.validation_alias, AliasChoices):
            known += [choice for choice in info.validation_alias.choices if isinstance(choice, str)]
    given = [name for name in environment() if name.startswith(PREFIX)]
    in_file = file_values(environment().get(NAMED_BY))
    unknown = strangers(given, known) | strangers(in_file, list(fields))
    return judge_settings(unknown, [name for name in secrets() if name in in_file])


def trust_check(settings: Settings) -> Check:
    """Tell which postures are configured, and whether anybody can prove who they are."""
    file = settings.sources.file()
    can_prove = bool(file.services_secret or file.sources or settings.sources.source_of_prefix)
    return judge_trust(settings.batch.postures, can_prove=can_prove)


def disk_check(settings: Settings) -> Check:
    """Look at the disk of the embedded broker."""
    folder = data_dir(settings).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    usage = shutil.disk_usage(there)
    return judge_disk(free_bytes=usage.free, total_bytes=usage.total)


async def worker_checks(workers: Mapping[str, str]) -> list[Check]:
    """Ask every worker whether it is ready."""
    workers_health = await complaints(workers)
    return judge_workers(
        {name: health.red for name, health in workers_health.items()},
        {name: health.waits for name, health in workers_health.items()},
    )
