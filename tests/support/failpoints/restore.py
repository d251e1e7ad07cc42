"""``combee restore`` with a failpoint: ``python -m support.failpoints.restore AT MARKER FILE SERVERS PREFIX``."""

import asyncio
import sys
from pathlib import Path

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.assembly.backends import connection
from combee.core.log.layout import wanted
from combee.log.archive import restoring
from combee.process.settings.loading import load_settings
from support.failpoints.points import ExitFailpoint
from support.failpoints.ports import FaultInjectingLog

PARTITIONS, SCAN_PARTITIONS = 3, 2


async def run(at: str, marker: Path, file: Path, servers: str, prefix: str) -> None:
    settings = load_settings(
        bootstrap_servers=servers,
        topic_prefix=prefix,
        partitions=PARTITIONS,
        scan_partitions=SCAN_PARTITIONS,
    )
    connected = connection(settings, servers)
    log = KafkaLog(connected)
    await restoring.restore(
        FaultInjectingLog(log, ExitFailpoint(at, marker)),
        KafkaAdmin(connected),
        file,
        wanted(PARTITIONS, SCAN_PARTITIONS),
        prefix=prefix,
        replication=1,
        clock=SystemClock(),
    )
    await log.close()


if __name__ == "__main__":
    restoring.WRITTEN_AT_ONCE = 20
    at, marker, file, servers, prefix = sys.argv[1:]
    asyncio.run(run(at, Path(marker), Path(file), servers, prefix))
