"""Dead letters on a real broker: sent again once the fault is mended, each reaches the playbook once."""

import asyncio
import json
import urllib.request
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from combee.core.log.ledger import LedgerReport
from combee.log.inspection.audit import audit
from combee_schemas.reflection import Reflection
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.cli import combee
from support.running import PLAYBOOK, Running, running_stack

pytestmark = pytest.mark.timeout(240)

COUNT = 8
STALL_S = 90.0


def made(count: int = COUNT, playbook: str = PLAYBOOK) -> list[Reflection]:
    return [
        Reflection(reflection_id=f"r{n}", playbook=playbook, key_insight=f"When asked for {n}, answer {n}.")
        for n in range(count)
    ]


def set_faults(run: Running, **rates: float) -> None:
    """Let the stand-in fail from now on, or no longer."""
    url = (run.supervisor.folder / "sim.ready").read_text().removesuffix("/v1") + "/sim/faults"
    body = json.dumps(rates).encode()
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - our own, on loopback
    urllib.request.urlopen(asked, timeout=10).close()  # noqa: S310


async def until(run: Running, **wanted: int) -> LedgerReport:
    """Wait until the ledger counts so many."""
    async with asyncio.timeout(STALL_S):
        while True:
            report = await audit(run.log)
            if all(getattr(report, name) == count for name, count in wanted.items()):
                return report
            await asyncio.sleep(0.2)


async def test_reflections_that_failed_for_good_are_retried_into_the_playbook_and_count_once(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    async def verb(*arguments: str) -> Any:
        site = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": topic_prefix}
        ended = await combee(*arguments, "--json", data_dir=tmp_path, **site)
        assert ended.code == 0, ended.err
        return ended.json()

    async with running_stack(
        kafka.bootstrap_servers, topic_prefix, tmp_path, latency="0", batch_size=COUNT, max_wait_s=2.0
    ) as run:
        await asyncio.to_thread(set_faults, run, malformed=1.0)
        await run.log.produce(*map(outgoing, made()))
        report = await until(run, dead_lettered=COUNT, pending=0)
        assert report.good
        await asyncio.to_thread(set_faults, run)

        retried = (await verb("dlq", "retry", "--all"))["retried"]
        assert sorted(row["record_id"] for row in retried) == [one.reflection_id for one in made()]
        report = await until(run, applied=COUNT, pending=0)
        assert (report.good, report.dead_lettered) == (True, 0), report.violations

        again = await verb("dlq", "retry", *(row["id"] for row in retried))
        assert (again["retried"], len(again["unchanged"])) == ([], COUNT)
        assert (await verb("dlq", "list"))["total"] == 0
        verdict = await verb("ledger")
        counted = verdict["applied"], verdict["double"], verdict["lost"], verdict["violations"]
        assert counted == (COUNT, 0, 0, [])


async def test_a_bad_deploy_stops_scan_and_a_mended_one_loses_nothing(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    def stack(name: str) -> AbstractAsyncContextManager[Running]:
        folder = tmp_path / name
        folder.mkdir()
        return running_stack(kafka.bootstrap_servers, topic_prefix, folder, latency="0", batch_size=40)

    async with stack("bad") as run:
        await asyncio.to_thread(set_faults, run, malformed=1.0)
        published = [one for name in ("a", "b", "c") for one in made(40, name)]
        await run.log.produce(*map(outgoing, published))
        async with asyncio.timeout(STALL_S):
            while "stops before it dead-letters everything" not in run.supervisor.tail("scan"):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.1)
    async with stack("mended") as run:
        async with asyncio.timeout(STALL_S):
            while (report := await audit(run.log)).applied + report.dead_lettered < len(published):  # noqa: ASYNC110 - the log
                await asyncio.sleep(0.2)
    assert (report.good, report.lost, report.double) == (True, 0, 0), report.violations
    assert report.applied >= len(published) / 2
