"""``combee worker`` with a failpoint: ``python -m support.failpoints.worker AT MARKER worker ROLE --slot N``."""

import argparse
import asyncio
from pathlib import Path

from combee.assembly.compose import run_worker
from combee.assembly.local.supervisor import die_with_parent
from combee.process.settings.loading import load_settings
from combee.process.telemetry.logs import configure_logs
from support.failpoints.points import ExitFailpoint
from support.failpoints.ports import FaultInjectingLog, FaultInjectingModel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("at")
    parser.add_argument("marker", type=Path)
    parser.add_argument("verb", choices=["worker"])
    parser.add_argument("role")
    parser.add_argument("--slot", type=int)
    parser.add_argument("--die-with-parent", action="store_true")
    given = parser.parse_args()
    if given.die_with_parent:
        die_with_parent()
    failpoint = ExitFailpoint(given.at, given.marker)
    settings = load_settings(slot=given.slot)
    configure_logs(settings.worker.log_level, json=settings.worker.log_json)
    work = run_worker(
        given.role,
        settings,
        str(settings.kafka.bootstrap_servers),
        wrap_log=lambda log: FaultInjectingLog(log, failpoint),
        wrap_model=lambda model: FaultInjectingModel(model, failpoint),
    )
    asyncio.run(work)


if __name__ == "__main__":
    main()
