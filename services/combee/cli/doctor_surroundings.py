"""What ``combee doctor`` looks at on this machine: settings, disk, the workers of ``combee up``."""

import asyncio
import http.client
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import AliasChoices

from combee.cli.stack import data_dir, stack_file, stack_is_running
from combee.core.diagnosis import Check
from combee.core.diagnosis.surroundings import judge_disk, judge_settings, judge_workers, strangers
from combee.runtime.group import NAMED_BY, file_values, read_trusted
from combee.runtime.settings import GROUPS, Settings, environment

SECRETS = ("api_key", "sasl_password")
READ_ELSEWHERE = ("COMBEE_JAVA", NAMED_BY)
PREFIX = "COMBEE_"
WORKER_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What ``combee up`` on the embedded broker says of itself."""

    workers: Mapping[str, str] = field(default_factory=dict)
    """Name → address."""
    simulated_url: str | None = None


def settings_checks() -> list[Check]:
    """Look for settings that nobody reads, and for secrets in the file."""
    fields = {name: info for group in GROUPS.values() for name, info in group.model_fields.items()}
    known = [f"{PREFIX}{name.upper()}" for name in fields] + list(READ_ELSEWHERE)
    for info in fields.values():
        if isinstance(info.validation_alias, AliasChoices):
            known += [one for one in info.validation_alias.choices if isinstance(one, str)]
    given = [name for name in environment() if name.startswith(PREFIX)]
    in_file = file_values(environment().get(NAMED_BY))
    unknown = strangers(given, known) | strangers(in_file, list(fields))
    return judge_settings(unknown, [name for name in SECRETS if name in in_file])


def disk_check(settings: Settings) -> Check:
    """Look at the disk of the embedded broker."""
    folder = data_dir(settings).absolute()
    there = next(one for one in (folder, *folder.parents) if one.is_dir())
    usage = shutil.disk_usage(there)
    return judge_disk(free_bytes=usage.free, total_bytes=usage.total)


def running(settings: Settings) -> Running:
    """Return what runs on this user's embedded broker."""
    if settings.kafka.bootstrap_servers is not None or not stack_is_running(settings):
        return Running()
    state = json.loads(read_trusted(stack_file(settings)))
    return Running(workers=state.get("workers", {}), simulated_url=state.get("base_url"))


async def worker_checks(workers: Mapping[str, str]) -> list[Check]:
    """Ask every worker whether it is ready."""
    red = await asyncio.gather(*(asyncio.to_thread(_red, address) for address in workers.values()))
    return judge_workers(dict(zip(workers, red, strict=True)))


def _red(address: str) -> list[str]:
    """Return the red lines of a worker's ``/readyz``."""
    where = urlsplit(address)
    connection = http.client.HTTPConnection(
        where.hostname or "", where.port or None, timeout=WORKER_TIMEOUT_S
    )
    try:
        connection.request("GET", "/readyz")
        body = connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return [f"it does not answer ({type(error).__name__})"]
    finally:
        connection.close()
    return [line.removeprefix("RED ") for line in body.splitlines() if line.startswith("RED ")]
