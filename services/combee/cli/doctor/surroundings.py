"""What ``combee doctor`` looks at on this machine: settings, disk, the workers of ``combee up``."""

import shutil
from collections.abc import Mapping

from pydantic import AliasChoices

from combee.core.diagnosis import Check
from combee.core.diagnosis.surroundings import judge_disk, judge_settings, judge_workers, strangers
from combee.local.deployment import complaints
from combee.local.stack_file import data_dir
from combee.sdk.environment import VARIABLES
from combee.settings.group import NAMED_BY, file_values
from combee.settings.loading import GROUPS, Settings, environment

SECRETS = ("api_key", "sasl_password")
READ_ELSEWHERE = ("COMBEE_JAVA", NAMED_BY, *VARIABLES)
PREFIX = "COMBEE_"


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


async def worker_checks(workers: Mapping[str, str]) -> list[Check]:
    """Ask every worker whether it is ready."""
    told = await complaints(workers)
    return judge_workers(
        {name: one.red for name, one in told.items()}, {name: one.waits for name, one in told.items()}
    )
