"""Tenants: whose playbook is whose, what was spent today by all of them, what a rate admits."""

import pytest

from combee.core.names import tenants as names_of_tenants
from combee.core.names.tenants import IN_BATCHES_S, Limits, Tenants, tenant_of
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from combee_schemas.base import DAY_MS
from combee_schemas.playbook import Playbook, Spend
from support.rows import each_row

DAY = 20_000
NOON_MS = DAY * DAY_MS + DAY_MS // 2


def snapshot(name: str, tokens: int, *, day: int = DAY, cost: float = 0.0, version: int = 1) -> Playbook:
    return Playbook(name=name, version=version, spend=Spend(day=day, tokens=tokens, cost=cost))


@each_row(
    ("name", "tenant"),
    [
        ("support/refunds", "support"),
        ("support", "support"),
        ("support/a/b@small", "support"),
        ("a-b/c", "a-b"),
    ],
)
def test_a_tenant_is_what_stands_before_the_first_slash(name: str, tenant: str) -> None:
    assert tenant_of(name) == tenant


def test_all_playbooks_and_branches_of_a_tenant_have_one_cap_until_the_day_ends() -> None:
    tenants = Tenants({"support": Limits(daily_tokens=1_000)})
    for playbook in (snapshot("support/a", 500), snapshot("support/a@b", 300), snapshot("sales/a", 5_000)):
        tenants.spent(playbook)
    assert tenants.pause("support", NOON_MS) is None
    tenants.spent(snapshot("support/a", 700, version=2))
    pause = tenants.pause("support", NOON_MS)
    assert pause is not None
    assert pause.until_ms == (DAY + 1) * DAY_MS
    assert pause.reason == "tenant support: 1,000 of 1,000 tokens spent today by all its playbooks"
    assert tenants.pause("support", pause.until_ms) is None
    assert tenants.pause("sales", NOON_MS) is None


def test_yesterdays_snapshots_count_for_nothing_whatever_comes_first() -> None:
    tenants = Tenants({"support": Limits(daily_cost=1.0)})
    tenants.spent(snapshot("support/a", 0, cost=0.6))
    tenants.spent(snapshot("support/b", 0, cost=9.0, day=DAY - 1))
    assert tenants.pause("support", NOON_MS) is None
    tenants.spent(snapshot("support/c", 0, cost=0.4))
    assert tenants.pause("support", NOON_MS) is not None
    tenants.spent(snapshot("support/c", 0, cost=0.1, day=DAY + 1))
    assert tenants.pause("support", NOON_MS + DAY_MS) is None


def test_a_rate_admits_what_comes_at_once_and_then_nothing_until_it_is_through() -> None:
    tenants = Tenants({"*": Limits(reflections_per_second=5)})
    assert tenants.wait_s("support", 100.0) == 0
    tenants.admit("support", 50, 100.0)
    assert tenants.wait_s("support", 100.0) == pytest.approx(9)
    assert tenants.wait_s("sales", 100.0) == 0
    assert tenants.wait_s("support", 109.5) == 0


def test_invented_tenants_are_forgotten_once_their_rate_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_of_tenants, "MAX_IDLE", 10)
    tenants = Tenants({"*": Limits(reflections_per_second=1)})
    tenants.admit("busy", 1_000, 0.0)
    for number in range(100):
        tenants.admit(f"invented-{number}", 1, 10.0 * number)
    assert tenants.known <= 10
    assert tenants.wait_s("busy", 500.0) > 0


def test_windows_that_close_together_of_a_tenant_that_keeps_to_its_rate_are_not_held() -> None:
    tenants = Tenants({"*": Limits(reflections_per_second=5)}, burst_s=IN_BATCHES_S)
    for _ in range(10):
        assert tenants.wait_s("support", 100.0) == 0
        tenants.admit("support", 40, 100.0)
    tenants.admit("support", 5_000, 100.0)
    assert tenants.wait_s("support", 100.0) == pytest.approx(480)


def test_limits_are_settings_and_a_name_that_is_no_tenant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "COMBEE_TENANTS", '{"support": {"daily_tokens": 7}, "*": {"reflections_per_second": 2}}'
    )
    tenants = Tenants(load_settings().tenants.limits())
    assert tenants.limits("support") == Limits(daily_tokens=7)
    assert tenants.limits("sales") == Limits(reflections_per_second=2)
    monkeypatch.setenv("COMBEE_TENANTS", '{"support/refunds": {}}')
    with pytest.raises(SettingsError, match="a tenant is the part of a playbook's name before the first '/'"):
        load_settings()
