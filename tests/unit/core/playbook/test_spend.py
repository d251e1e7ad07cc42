"""Spend caps: what is counted, and when a playbook pauses."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import Entry, Playbook, Spend
from support.ledger import NAME

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
