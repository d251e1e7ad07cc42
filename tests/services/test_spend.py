"""Spend caps of running services: a playbook pauses, goes on the next day, and nothing is lost."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from combee.adapters.ports import Outgoing
from combee.cli.learn.learning import Learning
from combee.cli.status import log_status
from combee.core.playbook.spend import (
    UNCAPPED,
    SpendPolicy,
)
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import PausedError
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook, Spend
from combee_schemas.reflection import Reflection
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, batch_of, batches, latest, lessons, outgoing, reflection, versions

pytestmark = pytest.mark.usefixtures("quick_polls")

DAY = 20_000
NOON_MS = DAY * DAY_MS + DAY_MS // 2


def capped(tokens: int | None = None, **settings: Any) -> Deployment:
    return Deployment(batch_size=5, spending=SpendPolicy(daily_tokens=tokens), **settings)


async def publish(deployment: Deployment, numbers: range, **fields: Any) -> None:
    await deployment.log.produce(*(outgoing(reflection(n, **fields)) for n in numbers))


async def measured(inflight: int) -> int:
    """Return what one batch takes."""
    deployment = capped(max_inflight_batches=inflight)
    async with deployment.running():
        await publish(deployment, range(5))
        await deployment.until(lambda: ledger.applied(deployment.log) == 5)
    return latest(deployment.log).spend.tokens


def resting(deployment: Deployment) -> bool:
    """Return whether nothing is in flight and everything else waits."""
    cut, made = batches(deployment.log), versions(deployment.log)
    waiting = ("shuffle", topics.REFLECTIONS.name)
    return (
        bool(made)
        and len(cut) == len(made)
        and all(at[:2] == waiting for at in ledger.behind(deployment.log))
    )


async def stays(deployment: Deployment, count: int) -> None:
    """Assert that no more than ``count`` reflections are ever applied while the shuffler looks again."""
    await deployment.until(lambda: resting(deployment) and ledger.applied(deployment.log) == count)
    assert deployment.shuffler is not None
    for _ in range(3):
        await deployment.shuffler.turn()
    assert len(batches(deployment.log)) == len(versions(deployment.log)), "a batch went although paused"


@pytest.mark.usefixtures("every_level")
@pytest.mark.parametrize("inflight", [1, 3])
async def test_a_playbook_at_its_cap_pauses_and_goes_on_the_next_day_and_nothing_is_lost(
    inflight: int,
) -> None:
    one = await measured(inflight)
    cap = one * 5 // 2
    deployment = capped(cap, max_inflight_batches=inflight)
    published = {NAME: [reflection(n) for n in range(20)], "a": [reflection(n, "a") for n in range(5)]}
    with capture_logs() as logs:
        async with deployment.running():
            await deployment.log.produce(*map(outgoing, published[NAME]))
            await stays(deployment, 10)
            assert latest(deployment.log).spend.tokens <= cap
            await deployment.log.produce(*map(outgoing, published["a"]))
            await deployment.until(lambda: ledger.applied(deployment.log, "a") == 5)
            deployment.advance(86_400)
            await deployment.until(lambda: ledger.applied(deployment.log) >= 15)
            deployment.advance(86_400)
            await deployment.until(lambda: ledger.applied(deployment.log) == 20)
            await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, published)
    assert (await audit(deployment.log)).violations == ()
    assert {entry.content for entry in latest(deployment.log).entries} == lessons(range(20))
    said = [(one["event"], one["playbook"]) for one in logs if one["event"] in {"paused", "resumed"}]
    assert said[:2] == [("paused", NAME), ("resumed", NAME)]
    assert len(said) in {2, 4}


async def test_a_restart_changes_nothing_and_one_with_a_higher_cap_resumes_at_once() -> None:
    deployment = capped(await measured(1) * 3 // 2)
    await publish(deployment, range(15))
    for _ in range(2):
        async with deployment.running():
            await stays(deployment, 5)
            assert deployment.shuffler is not None
            assert deployment.shuffler.held() == {"source": 0, "tenant": 0, "spend": 10, "pause": 0}
    deployment.spending = SpendPolicy(daily_tokens=10**9)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 15)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, {NAME: [reflection(n) for n in range(15)]})


async def test_a_flush_does_not_override_the_cap_and_says_so_and_is_done_afterwards() -> None:
    deployment = capped(1)
    flush = Command(command_id="f", playbook=NAME, kind="flush", through_offset=7)
    with capture_logs() as logs:
        async with deployment.running():
            await publish(deployment, range(8))
            await deployment.until(lambda: ledger.applied(deployment.log) == 5)
            await deployment.log.produce(outgoing(flush))
            await deployment.until(lambda: any(one["event"] == "flush_waits" for one in logs))
            for _ in range(3):
                await deployment.shuffler.turn()  # type: ignore[union-attr]
            assert len(batches(deployment.log)) == 1
            deployment.advance(86_400)
            await deployment.until(lambda: ledger.applied(deployment.log) == 8)
    assert batches(deployment.log)[-1].plan.reason == "flush"
    assert sum(one["event"] == "flush_waits" for one in logs) == 1


async def test_while_a_playbook_is_paused_its_bodies_stay_in_the_log() -> None:
    deployment = capped(1, window_memory_bytes=1000)
    async with deployment.running():
        await publish(deployment, range(200), reasoning="x" * 400)
        await stays(deployment, 5)
        (state,) = [s for s in deployment.shuffler._states.values() if s.windows]  # type: ignore[union-attr]
        assert len(state.window(NAME)) == 195
        assert state.body_bytes <= 1000


async def test_a_reflection_that_claims_a_fortune_does_not_pause_its_playbook() -> None:
    one = await measured(1)
    deployment = capped(one * 2 + 1_000)
    deployment.spending = replace(deployment.spending, reflection_tokens=100)
    with capture_logs() as logs:
        async with deployment.running():
            await publish(deployment, range(1), usage=Usage(calls=1, tokens_in=10**12))
            await publish(deployment, range(1, 10))
            await deployment.until(lambda: ledger.applied(deployment.log) == 10)
    first, second = batches(deployment.log)
    assert (first.plan.reflect_usage.tokens_in, second.plan.reflect_usage.tokens_in) == (100, 0)
    (said,) = [one for one in logs if one["event"] == "usage_bounded"]
    assert (said["playbook"], said["reflections"], said["most_tokens"]) == (NAME, ["r-0"], 100)


async def test_what_the_members_reflections_cost_is_in_manifest_and_version_and_counts() -> None:
    deployment = capped(window_memory_bytes=300)
    async with deployment.running():
        await publish(deployment, range(5), usage=Usage(calls=1, tokens_in=100, tokens_out=20, seconds=0.5))
        await deployment.until(lambda: ledger.applied(deployment.log) == 5)
    wanted = Usage(calls=5, tokens_in=500, tokens_out=100, seconds=2.5)
    (batch,), version = batches(deployment.log), latest(deployment.log)
    assert batch.plan.reflect_usage == batch_of(version).plan.reflect_usage == wanted
    assert version.spend.tokens == 600 + version.usage.tokens_in + version.usage.tokens_out


async def test_a_hostile_usage_does_not_stop_the_shuffler() -> None:
    deployment = capped(10)
    async with deployment.running():
        await publish(deployment, range(5), usage=Usage(tokens_in=2**63, tokens_out=2**63, seconds=1e308))
        await deployment.until(lambda: ledger.applied(deployment.log) == 5)


# ---- what people see


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def stand_at(now_ms: int) -> None:
        monkeypatch.setattr("combee.adapters.clock.SystemClock.now_ms", lambda _: now_ms)

    return stand_at


async def status_of(deployment: Deployment, spending: SpendPolicy = UNCAPPED) -> dict[str, Any]:
    (line,) = (await log_status(deployment.log, 5, spending)).playbooks
    return line.model_dump(mode="json")


async def test_status_tells_spend_cap_and_pause_from_the_log_alone(now: Callable[[int], None]) -> None:
    snapshot = Playbook(
        name=NAME,
        version=1,
        spend=Spend(day=DAY, tokens=980, tokens_each=10.0, cap_tokens=1000, cap_cost=5.0, cost=0.25),
        batch_sequence=1,
    )
    deployment = Deployment()
    await deployment.log.produce(Outgoing(topic="playbooks", key=NAME.encode(), value=encode(snapshot)))
    now(NOON_MS)
    row = await status_of(deployment)
    assert row["spend"] == {
        "day": "2024-10-04", "tokens": 980, "cost": 0.25, "cap_tokens": 1000, "cap_cost": 5.0, "together": None,
    }  # fmt: skip
    assert row["paused"]["until_ms"] == (DAY + 1) * DAY_MS
    assert "980 of 1,000 tokens" in row["paused"]["reason"]
    assert (await status_of(deployment, SpendPolicy(daily_tokens=9999)))["paused"] is None
    now(NOON_MS + DAY_MS)
    row = await status_of(deployment)
    assert (row["spend"]["tokens"], row["paused"]) == (0, None)


async def test_learn_does_not_wait_for_a_paused_playbook_and_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("combee.log.inspection.tracker.PAUSED_S", 0.0)
    deployment = capped(1)
    items: list[Reflection] = [reflection(n) for n in range(8)]
    learning = Learning(deployment.log, None, deployment.clock, concurrency=1)
    async with deployment.running():
        with pytest.raises(PausedError, match="COMBEE_DAILY_TOKENS"):
            await learning.run(items, NAME, stall_s=60)
        deployment.advance(86_400)
        report = await learning.run(items, NAME, stall_s=60)
    assert report.applied == 3
