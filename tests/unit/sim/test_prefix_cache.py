"""The simulated prompt cache counts what a provider's would."""

from typing import Any

import pytest

from combee_sim.prefix_cache import BLOCKS_KEPT, IDLE_S, MIN_TOKENS, STEP_TOKENS, PrefixCache

SHARED = "".join(f"Rule {n}: weigh before packing. " for n in range(600))
SCHEMA = {"type": "json_schema", "json_schema": {"name": "operations", "schema": {"type": "object"}}}


def request(user: str, *, system: str = SHARED, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "response_format": schema or SCHEMA,
    }


@pytest.fixture
def cache() -> PrefixCache:
    made = PrefixCache()
    made.answered(request("the first group"), 10.0)
    return made


def test_what_two_requests_begin_with_is_cached_in_steps(cache: PrefixCache) -> None:
    cached = cache.cached_tokens(request("another group"), 11.0)

    assert cached % STEP_TOKENS == 0
    assert len(SHARED) // 4 - STEP_TOKENS <= cached <= len(SHARED) // 4 + STEP_TOKENS


def test_nothing_is_cached_until_a_request_with_the_prefix_is_answered(cache: PrefixCache) -> None:
    assert PrefixCache().cached_tokens(request("the first group"), 10.0) == 0
    assert cache.cached_tokens(request("asked at the same time"), 10.0) == 0


def test_a_prefix_that_differs_at_its_beginning_is_not_cached(cache: PrefixCache) -> None:
    assert cache.cached_tokens(request("g", system="X" + SHARED), 11.0) == 0


def test_another_schema_spoils_the_prefix_since_it_stands_first(cache: PrefixCache) -> None:
    other = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}

    assert cache.cached_tokens(request("g", schema=other), 11.0) == 0


def test_a_short_prefix_is_not_cached() -> None:
    cache = PrefixCache()
    system = SHARED[: 4 * (MIN_TOKENS - 2 * STEP_TOKENS)]
    cache.answered(request("a", system=system), 1.0)

    assert cache.cached_tokens(request("b", system=system), 2.0) == 0


def test_an_idle_prefix_is_forgotten_and_a_used_one_is_not(cache: PrefixCache) -> None:
    assert cache.cached_tokens(request("g"), 11.0 + IDLE_S) == 0
    cache.answered(request("g"), 10.0 + IDLE_S)
    assert cache.cached_tokens(request("h"), 11.0 + IDLE_S) > 0


def test_memory_is_bounded_and_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee_sim.prefix_cache.BLOCKS_KEPT", 60)
    assert BLOCKS_KEPT > 60  # the real bound holds many playbooks
    cache = PrefixCache()
    for n in range(5):
        cache.answered(request("g", system=f"playbook {n} {SHARED}"), float(n))

    assert cache.cached_tokens(request("h", system=f"playbook 4 {SHARED}"), 9.0) > 0
    assert cache.cached_tokens(request("h", system=f"playbook 0 {SHARED}"), 9.0) == 0
