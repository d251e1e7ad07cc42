"""Tenants on the command line: deleted whole, nobody else's touched; cost summed up."""

import asyncio

import pytest

from combee.cli.status import log_status
from combee.core.names.tenants import Limits
from combee.log.history import newest_playbooks
from support import ledger
from support.deployment import Deployment
from support.ledger import outgoing, reflection
from support.reading import publish_with, run, run_json, use_log

pytestmark = pytest.mark.usefixtures("quick_polls")
NAMES = ("support/refunds", "support/returns", "supporters", "sales/leads")
SIZE = 3


async def _learn(deployment: Deployment) -> None:
    deployment.log._store.notify()  # a fresh event: the old one belongs to the loop before
    async with deployment.running():
        for name in NAMES:
            await deployment.log.produce(*(outgoing(reflection(n, name)) for n in range(SIZE)))
        await deployment.until(lambda: all(ledger.versions(deployment.log, name) for name in NAMES))


@pytest.fixture
def deployment(quick_polls: None, monkeypatch: pytest.MonkeyPatch) -> Deployment:  # noqa: ARG001 - order
    made = Deployment(batch_size=SIZE)
    use_log(monkeypatch, made.log)
    publish_with(monkeypatch, made, "shuffle", "publish")
    asyncio.run(_learn(made))
    return made


def test_all_that_a_tenant_has_is_deleted_branches_first_and_what_remains_is_said(
    deployment: Deployment,
) -> None:
    run_json("branch", "support/refunds", "--as", "small")
    document = run_json("tenant", "delete", "support", "--yes")
    assert document["deleted"] == ["support/refunds@small", "support/refunds", "support/returns"]
    assert document["remains"]["history"] == "for ever"
    assert document["remains"]["reflections"].endswith("days")
    assert "playbooks" not in document["remains"]
    assert sorted(asyncio.run(newest_playbooks(deployment.log))) == ["sales/leads", "supporters"]


@pytest.mark.usefixtures("deployment")
def test_a_tenant_without_playbooks_is_no_tenant() -> None:
    ended = run("tenant", "delete", "nobody", "--yes")
    assert ended.exit_code == 1
    assert "no playbook's name begins with nobody/" in ended.output


@pytest.mark.usefixtures("deployment")
def test_cost_is_summed_up_by_tenant() -> None:
    each = {row["name"]: row for row in run_json("playbook", "cost")}
    tenants = {row["name"]: row for row in run_json("playbook", "cost", "--by", "tenant")}
    assert list(tenants) == ["sales", "support", "supporters"]
    parts = [each["support/refunds"], each["support/returns"]]
    for figure in ("batches", "reflections", "model_calls"):
        assert tenants["support"][figure] == sum(row[figure] for row in parts)
    assert tenants["support"]["tokens"]["in"] == sum(row["tokens"]["in"] for row in parts)
    (day,) = tenants["support"]["days"]
    assert day["tokens"] == sum(row["days"][0]["tokens"] for row in parts)
    assert "tenant" in run("playbook", "cost", "--by", "tenant").output


def test_status_says_of_every_playbook_of_a_tenant_why_it_waits(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.adapters.clock.SystemClock.now_ms", lambda _: deployment.clock.now_ms())
    limits = {"support": Limits(daily_tokens=1)}
    rows = asyncio.run(log_status(deployment.log, SIZE, limits=limits)).playbooks
    assert {line.name: bool(line.paused) for line in rows} == {
        name: name.startswith("support/") for name in NAMES
    }
