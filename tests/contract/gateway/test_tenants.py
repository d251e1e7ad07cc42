"""Limits of tenants at the gateway: 429 with Retry-After, each tenant for itself, repeats for nothing."""

from typing import Any

from combee_schemas.base import DAY_MS
from combee_schemas.playbook import Spend
from support.gateway import Asked, asked, version


def lesson(number: int, playbook: str = "support/refunds") -> dict[str, Any]:
    return {"reflection_id": f"r{number}", "playbook": playbook, "key_insight": f"check date {number}"}


async def post(gateway: Asked, body: Any) -> Any:
    return await gateway.client.post("/v1/reflections", json=body)


async def test_a_tenant_above_its_rate_is_told_when_to_come_again_and_another_is_not() -> None:
    async with asked(tenants={"support": {"reflections_per_second": 0.1}}) as gateway:
        assert (await post(gateway, lesson(1))).status_code == 202
        refused = await post(gateway, lesson(2))
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert "support publishes more than 0.1 reflections per second" in refused.json()["detail"]
        assert (await post(gateway, lesson(1, "sales/leads"))).status_code == 202
        repeated = await post(gateway, lesson(1))
        assert repeated.json()["repeated"] == 1


async def test_of_many_items_those_of_the_tenant_at_its_limit_are_refused_alone() -> None:
    async with asked(tenants={"support": {"reflections_per_second": 0.1}}) as gateway:
        await post(gateway, lesson(1))
        answer = await post(gateway, [lesson(2), lesson(3, "sales/leads")])
        assert answer.status_code == 207
        first, second = answer.json()["items"]
        assert (first["status"], first["problem"]["status"], second["status"]) == ("refused", 429, "accepted")
        all_refused = await post(gateway, [lesson(2), lesson(4)])
        assert all_refused.status_code == 429
        assert int(all_refused.headers["retry-after"]) >= 1


async def test_a_tenant_that_spent_its_tokens_of_the_day_is_refused_until_the_day_ends() -> None:
    async with asked(tenants={"*": {"daily_tokens": 1_000}}) as gateway:
        now_ms = gateway.context.clock.now_ms()
        spend = Spend(day=now_ms // DAY_MS, tokens=1_000)
        await gateway.knows(version("support/refunds", 1, spend=spend))
        refused = await post(gateway, lesson(1, "support/other"))
        assert refused.status_code == 429
        left_s = DAY_MS / 1000 - now_ms % DAY_MS / 1000
        assert abs(int(refused.headers["retry-after"]) - left_s) < 30
        assert "1,000 of 1,000 tokens spent today" in refused.json()["detail"]
        assert (await post(gateway, lesson(1, "sales/leads"))).status_code == 202
