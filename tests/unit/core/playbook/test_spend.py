"""Spend caps: what is counted, when a playbook pauses, and that a pause loses nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from combee.adapters.ports import Outgoing
from combee.cli.learn.learning import Learning
from combee.cli.status import log_status
from combee.core.playbook.executing import after_command
from combee.core.playbook.spend import (
    MOST,
    UNCAPPED,
    LineSpend,
    SpendPolicy,
    after_batch,
    at_once,
    pause,
    today,
    total,
)
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import PausedError
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import Entry, Playbook, Spend
from combee_schemas.reflection import Reflection
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, batch_of, batches, latest, lessons, outgoing, reflection, versions

pytestmark = pytest.mark.usefixtures("quick_polls")

DAY = 20_000
NOON_MS = DAY * DAY_MS + DAY_MS // 2
CAP = SpendPolicy(price_in=2.0, price_out=10.0, daily_tokens=1000, daily_cost=5.0)


def spent(tokens: int, each: float = 10.0, day: int = DAY, **fields: Any) -> Spend:
    return Spend(day=day, tokens=tokens, tokens_each=each, **fields)


def paused(spend: Spend, policy: SpendPolicy = CAP, *, in_flight: int = 0, size: int = 10) -> bool:
    return pause(spend, policy, in_flight=in_flight, batch_size=size, now_ms=NOON_MS) is not None


def test_a_playbook_and_its_branches_have_one_cap() -> None:
    def beside(tokens: int, *, in_flight: int = 0, day: int = DAY) -> bool:
        other = LineSpend(spend=spent(tokens, each=20.0, day=day), in_flight=in_flight, batch_size=10)
        found = pause(spent(400), CAP, in_flight=0, batch_size=10, now_ms=NOON_MS, others=[other])
        return found is not None

    assert not beside(500), "400 + 500 + 10 * 10 are the cap"
    assert beside(501)
    assert beside(301, in_flight=1), "10 * 20 are on their way"
    assert not beside(300, in_flight=1)
    assert not beside(900, day=DAY - 1), "that was yesterday"
    assert not beside(900, day=DAY + 1), "by the other line's clock what this one spent was yesterday"
    assert beside(901, day=DAY + 1)


# ---- counting


def test_a_batch_counts_what_its_reflections_and_its_tree_took_at_the_prices_of_the_day() -> None:
    usages = (Usage(tokens_in=300_000, tokens_out=100_000), Usage(tokens_in=200_000))
    found = after_batch(spent(7), usages, reflections=40, now_ms=NOON_MS, policy=CAP)
    assert (found.day, found.tokens, found.tokens_each) == (DAY, 600_007, 15_000)
    assert found.cost == pytest.approx(2.0)
    assert found.cost_each == pytest.approx(0.05)
    assert (found.cap_tokens, found.cap_cost) == (1000, 5.0)


def test_a_new_day_begins_at_nothing_and_remembers_what_a_batch_takes() -> None:
    assert today(spent(900), NOON_MS + DAY_MS) == spent(0, day=DAY + 1)


def test_a_clock_that_steps_back_over_midnight_gives_nothing_back() -> None:
    assert today(spent(900), NOON_MS - DAY_MS) == spent(900)


def test_a_batch_that_got_no_answer_leaves_the_estimate_as_it_was() -> None:
    found = after_batch(spent(7), (Usage(),), reflections=40, now_ms=NOON_MS, policy=CAP)
    assert (found.tokens, found.tokens_each) == (7, 10.0)


NUMBERS = st.integers(-(2**63), 2**64 - 1)
USAGES = st.lists(
    st.builds(Usage, calls=NUMBERS, tokens_in=NUMBERS, tokens_out=NUMBERS, seconds=st.floats(-1e308, 1e308)),
    max_size=5,
)


@given(USAGES)
def test_whatever_usage_reflections_claim_it_fits_a_record_and_gives_nothing_back(
    usages: list[Usage],
) -> None:
    found = after_batch(spent(7), usages, reflections=1, now_ms=NOON_MS, policy=CAP)
    encode(Playbook(name=NAME, version=1, spend=found, reflect_usage=total(usages)))
    assert 7 <= found.tokens <= MOST
    assert found.cost >= 0


def test_a_command_leaves_the_spend_alone() -> None:
    entry = Entry(id="x-1", section="OTHERS", content="c")
    command = Command(command_id="c", playbook=NAME, kind="import", entries=(entry,))
    before = Playbook(name=NAME, version=1, spend=spent(900))
    after = after_command(before, command, 0, target=None, budget_tokens=1000, now_ms=NOON_MS)
    assert after.spend == before.spend


# ---- pausing


def test_one_more_batch_is_counted_in_advance() -> None:
    assert not paused(spent(900))
    assert paused(spent(901))


def test_batches_in_flight_are_counted_in_advance_too() -> None:
    assert not paused(spent(700), in_flight=2)
    assert paused(spent(701), in_flight=2)


def test_a_cap_that_is_reached_pauses_whatever_a_batch_takes() -> None:
    assert paused(spent(1000, each=0.0))


def test_the_first_batch_of_a_day_goes_even_if_it_takes_more_than_the_cap() -> None:
    assert not paused(spent(5000, each=1000, day=DAY - 1))
    assert paused(spent(5000, each=1000, day=DAY - 1), in_flight=1), "it is under way"
    assert paused(spent(1, each=1000))


def test_money_pauses_as_tokens_do_and_either_is_enough() -> None:
    rich: dict[str, Any] = {"cost": 4.5, "cost_each": 0.06}
    assert paused(spent(1, **rich))
    assert not paused(spent(1, cost=4.5, cost_each=0.04))
    assert not paused(spent(10**9, **rich), SpendPolicy(daily_cost=6.0))


def test_without_a_cap_nothing_pauses() -> None:
    assert not paused(spent(MOST), UNCAPPED, in_flight=9)


def test_a_pause_says_why_and_until_midnight() -> None:
    found = pause(spent(950), CAP, in_flight=1, batch_size=10, now_ms=NOON_MS)
    assert found is not None
    assert found.until_ms == (DAY + 1) * DAY_MS
    words = "950 of 1,000 tokens spent today; 1 in flight and a batch of 10 would take about 200"
    assert found.reason == words


def test_under_a_cap_batches_do_not_overlap_until_it_is_known_what_one_takes() -> None:
    assert at_once(Spend(), CAP, 3) == 1
    assert at_once(spent(0), CAP, 3) == 3
    assert at_once(Spend(), UNCAPPED, 3) == 3


@given(takes=st.lists(st.integers(1, 300), min_size=1, max_size=30), cap=st.integers(100, 2000))
def test_a_day_is_overrun_at_most_by_what_the_last_batch_took_beyond_the_one_before(
    takes: list[int], cap: int
) -> None:
    policy, spend, overrun = SpendPolicy(daily_tokens=cap), Spend(day=DAY), 0
    for took in takes:
        if pause(spend, policy, in_flight=0, batch_size=1, now_ms=NOON_MS):
            break
        first = not spend.tokens
        overrun = max(0, took - cap) if first else max(0, took - int(spend.tokens_each))
        usage = Usage(tokens_in=took)
        spend = after_batch(spend, [usage], reflections=1, now_ms=NOON_MS, policy=policy)
    assert spend.tokens <= cap + overrun


# ---- settings


def test_prices_come_from_the_table() -> None:
    prices = {"m": {"in": 1.0, "cached_in": 0.1, "out": 4.0}}
    spending = load_settings(prices=prices, daily_cost=3).spend
    assert spending.policy("m") == SpendPolicy(price_in=1.0, price_cached_in=0.1, price_out=4.0, daily_cost=3)


@pytest.mark.parametrize(
    ("cached_in", "cheaper"), [({"cached_in": 0.1}, True), ({"cached_in": 1.0}, False), ({}, False)]
)
def test_a_cache_is_cheaper_if_its_price_says_so(cached_in: dict[str, float], *, cheaper: bool) -> None:
    spending = load_settings(prices={"m": {"in": 1.0, "out": 4.0, **cached_in}}).spend
    assert spending.has_cheaper_cache("m") is cheaper
    assert not spending.has_cheaper_cache("another")
    assert not spending.has_cheaper_cache(None)


def test_cached_tokens_cost_what_they_cost_and_without_a_price_as_much_as_others() -> None:
    used = Usage(tokens_in=1_000_000, cached_tokens=400_000)
    assert SpendPolicy(price_in=2.0, price_cached_in=0.5).cost(used) == pytest.approx(1.4)
    assert SpendPolicy(price_in=2.0).cost(used) == pytest.approx(2.0)


@pytest.mark.parametrize("prices", [{}, {"prices": {"another": {"in": 1, "out": 1}}}])
def test_a_cap_on_money_without_prices_is_refused(prices: dict[str, Any]) -> None:
    spending = load_settings(daily_cost=3, **prices).spend
    with pytest.raises(SettingsError, match="m has no price"):
        spending.policy("m")


# ---- the services


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
            assert deployment.shuffler.held() == {"source": 0, "tenant": 0, "spend": 10}
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
    (row,) = (await log_status(deployment.log, 5, spending))["playbooks"]
    return dict(row)


async def test_status_tells_spend_cap_and_pause_from_the_log_alone(now: Callable[[int], None]) -> None:
    snapshot = Playbook(
        name=NAME, version=1, spend=spent(980, cap_tokens=1000, cap_cost=5.0, cost=0.25), batch_sequence=1
    )
    deployment = Deployment()
    await deployment.log.produce(Outgoing(topic="playbooks", key=NAME.encode(), value=encode(snapshot)))
    now(NOON_MS)
    row = await status_of(deployment)
    assert row["spend"] == {
        "day": "2024-10-04", "tokens": 980, "cost": 0.25, "cap_tokens": 1000, "cap_cost": 5.0
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
