"""What came when: the manifests say it, whatever a producer's clock says, also in a log that was restored."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Clock
from combee.cli.replay.recorded import Range, recording
from combee.cli.replay.verb import FAR_MS
from combee.core.commands import RefusedError
from combee.core.log.erasure.selector import Selector
from combee.core.log.replaying.selection import Selection
from combee.log.commands.log_store import LogStore
from combee.log.commands.playbook import Commands
from combee_schemas import topics
from combee_schemas.reflection import Reflection
from support import ledger
from support.archives import archived, restored
from support.clock import ManualClock
from support.deployment import Deployment
from support.forgetting import forgotten, wish
from support.ledger import NAME, lessons, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")
YEAR_MS, HOUR_S = 365 * 24 * 3_600_000, 3_600
FIRST, SECOND, WAITING = ["r-0", "r-1", "r-2"], ["r-3", "r-4", "r-5"], ["r-6"]
wrong_clocks = pytest.mark.parametrize("ahead_ms", [-YEAR_MS, 0, YEAR_MS], ids=["behind", "right", "ahead"])


class Story:
    """Batches of three at the hours 0 and 1; a reflection waits at hour 2. The producer's clock is ``ahead_ms``."""

    def __init__(self, ahead_ms: int) -> None:
        self.deployment = Deployment(batch_size=3, max_wait_s=1e9)
        self.log, self.clock = self.deployment.log, self.deployment.clock
        self._ahead_ms, self._began_ms = ahead_ms, self.clock.now_ms()

    async def told(self) -> "Story":
        async with self.deployment.running():
            for batch, ids in enumerate((FIRST, SECOND, WAITING)):
                for reflection_id in ids:
                    record = topics.REFLECTIONS.record(reflection(int(reflection_id[2:])))
                    told_ms = self.clock.now_ms() + self._ahead_ms
                    await self.log.produce(replace(record, timestamp_ms=told_ms))
                await self._until(min(batch + 1, 2))
                self.deployment.advance(HOUR_S)
        return self

    async def _until(self, versions: int) -> None:
        await self.deployment.until(lambda: len(ledger.versions(self.log)) == versions)

    def at(self, hour: float) -> str:
        """Return the time of an hour, as it is written in a rule."""
        at_ms = self._began_ms + int(hour * HOUR_S * 1000)
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


async def meant(log: MemoryLog, clock: Clock, rule: str) -> list[str]:
    """Return the reflections that a rule means; none: it is refused."""
    commands = Commands(log, LogStore(log), clock, issued_by="user:ada")
    try:
        decision = await commands.revoke(NAME, [rule])
    except RefusedError:
        return []
    assert decision.command is not None
    return sorted(decision.command.reflection_ids)


def expected(story: Story) -> dict[str, list[str]]:
    """Return what rules mean, by the time at which their reflections went into a batch."""
    return {
        f"since:{story.at(0.5)}": [*SECOND, *WAITING],
        f"until:{story.at(0.5)}": FIRST,
        f"between:{story.at(0.5)}/{story.at(1.5)}": SECOND,
        f"since:{story.at(1.5)}": WAITING,
        f"since:{story.at(9)}": [],
        f"until:{story.at(-1)}": [],
    }


@wrong_clocks
async def test_a_producers_clock_does_not_decide_what_is_revoked_by_time(ahead_ms: int) -> None:
    story = await Story(ahead_ms).told()
    for rule, ids in expected(story).items():
        assert await meant(story.log, story.clock, rule) == ids, rule


async def test_a_beginning_and_an_end_that_together_mean_everything_are_no_revocation() -> None:
    story = await Story(0).told()
    commands = Commands(story.log, LogStore(story.log), story.clock, issued_by="user:ada")
    since, until = f"since:{story.at(0.5)}", f"until:{story.at(1.5)}"
    with pytest.raises(RefusedError, match=re.escape(f"write between:{story.at(0.5)}/{story.at(1.5)}")):
        await commands.revoke(NAME, [since, "source:lab", until])
    outside = await commands.revoke(NAME, [f"until:{story.at(0.5)}", f"since:{story.at(1.5)}"])
    assert outside.command is not None
    assert sorted(outside.command.reflection_ids) == sorted([*FIRST, *WAITING])


@wrong_clocks
async def test_a_restored_log_gives_the_same_answer(ahead_ms: int, tmp_path: Path) -> None:
    story = await Story(ahead_ms).told()
    await archived(story.log, tmp_path / "archive")
    clock = ManualClock(story.clock.now_ms() + YEAR_MS // 2)
    target = MemoryLog(clock)
    await restored(tmp_path / "archive", target)
    for rule, ids in expected(story).items():
        batched = [reflection_id for reflection_id in ids if reflection_id not in WAITING]
        waiting = WAITING if rule.startswith("since") else []
        assert await meant(target, clock, rule) == [*batched, *waiting], rule


@wrong_clocks
async def test_what_has_expired_is_still_revoked_by_its_time(ahead_ms: int) -> None:
    story = await Story(ahead_ms).told()
    for partition in story.log._store.partitions(topics.REFLECTIONS.name):
        partition.first = partition.end
    assert await meant(story.log, story.clock, f"until:{story.at(0.5)}") == FIRST


@wrong_clocks
async def test_a_producers_clock_does_not_decide_what_is_replayed(ahead_ms: int) -> None:
    story = await Story(ahead_ms).told()
    rule = Selection.parse(f"since:{story.at(0.5)}")
    second = await recording(story.log, NAME, Range(times_ms=(int(rule.times_ms[0]), FAR_MS)))
    assert [arrival.reflection_id for arrival in second.arrivals] == SECOND
    without = await recording(story.log, NAME, Range(), [rule])
    assert [arrival.reflection_id for arrival in without.arrivals] == FIRST


# ---- what is forgotten


@wrong_clocks
async def test_a_producers_clock_hides_no_run_from_forgetting_by_time(ahead_ms: int, tmp_path: Path) -> None:
    story = await Story(ahead_ms).told()
    rule = Selection.parse(f"between:{story.at(0.5)}/{story.at(1.5)}")
    new = MemoryLog(story.clock, partitions=2, scan_partitions=3)
    await forgotten(story.log, new, tmp_path, wish(Selector(rules=(rule,), kind="filter")))
    kept = ledger.messages(new, topics.REFLECTIONS, Reflection)
    assert [reflection.reflection_id for reflection in kept] == [*FIRST, *WAITING]
    assert {entry.content for entry in ledger.latest(new).entries} == lessons(range(3))
