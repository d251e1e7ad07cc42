"""A cap that is reached pauses real services; a restart with a higher one goes on where they stopped."""

from pathlib import Path

import pytest

from combee.cli.status import log_status
from combee.clock import SystemClock
from combee.inspection.audit import audit
from combee.inspection.tracker import PausedError, Tracker
from combee_schemas.topics import outgoing
from support.broker import Broker
from support.faults.kills import STALL_S
from support.running import PLAYBOOK, running_stack, traces

COUNT = 30
SIZE = 10


@pytest.mark.timeout(120)
async def test_a_capped_playbook_pauses_and_goes_on_under_a_higher_cap(
    kafka: Broker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.inspection.tracker.PAUSED_S", 2.0)
    new = traces(COUNT, seed=1)
    where = (kafka.bootstrap_servers, topic_prefix)
    capped = {"daily_tokens": 1, "batch_size": SIZE, "latency": "0", "max_inflight_batches": 3}
    async with running_stack(*where, tmp_path / "a", **capped) as running:  # type: ignore[arg-type]
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, new.values()))
            with pytest.raises(PausedError, match="COMBEE_DAILY_TOKENS"):
                await running.learning().settle(tracker, new, stall_s=STALL_S)
        ledger = await audit(running.log)
        assert (ledger.applied, ledger.pending, ledger.violations) == (SIZE, COUNT - SIZE, ())
        (row,) = (await log_status(running.log, SIZE))["playbooks"]
        assert row["spend"]["tokens"] > row["spend"]["cap_tokens"] == 1
        assert row["paused"] is not None
    raised = {**capped, "daily_tokens": 10**9}
    async with running_stack(*where, tmp_path / "b", **raised) as running:  # type: ignore[arg-type]
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.learning().settle(tracker, new, stall_s=STALL_S)
        ledger = await audit(running.log)
        assert (ledger.applied, ledger.violations) == (COUNT, ())
