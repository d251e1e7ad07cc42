"""Alerts and dashboard in Prometheus itself: when rules fire, and what a running deployment gives every panel."""

import asyncio
import math
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from combee.adapters.clock import SystemClock
from combee.assembly import compose
from combee.log.inspection.tracker import Tracker
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.outcome import Outcome
from combee_schemas.topics import outgoing
from support import monitoring, prometheus
from support.broker import Broker
from support.kubernetes import CHART, rendered
from support.prometheus import Prometheus, documented_scrape, page, program
from support.running import PLAYBOOK, Running, running_stack, traces

pytestmark = pytest.mark.timeout(600)
RULE_TESTS = Path(__file__).with_name("alerts_test.yml")
COUNT = 60
STALL_S = 120.0
SAID = Outcome(run_id="run", playbook=PLAYBOOK, shown=Shown(version=1), success=True)
NAMESPACE = "learning"
SILENT = {
    "combee_condition": "no condition is red",
    "combee_forged_proofs_total": "no proof was forged",
    "combee_session_restarts_total": "no session began anew",
    "combee_gate_": "there is no gate",
    "combee_canary_": "there is no gate",
}
"""Metrics whose panels are rightly empty here."""


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    try:
        program("prometheus")
    except prometheus.NoPrometheusError as error:
        pytest.skip(str(error))


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(monitoring.rules())} rules found" in promtool("check", "rules", str(monitoring.ALERTS))


def test_every_alert_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", str(RULE_TESTS))
    asked = [
        (alert["alertname"], bool(alert["exp_alerts"]))
        for test in yaml.safe_load(RULE_TESTS.read_text("utf-8"))["tests"]
        for alert in test["alert_rule_test"]
    ]
    assert set(asked) == {(rule["alert"], fires) for rule in monitoring.rules() for fires in (True, False)}


async def test_a_running_deployment_fills_every_panel_and_raises_no_alert_until_it_is_gone(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        async with running_stack(
            kafka.bootstrap_servers,
            topic_prefix,
            tmp_path,
            latency="0.3",
            batch_size=20,
            metrics_port=0,
            gateway_port=0,
            roles=(*compose.ROLES, *compose.FRONTS),
        ) as running:
            addresses = scraped(running)
            shown = sum(len(config["targets"]) for config in documented_scrape()["static_configs"])
            assert len(addresses) == shown
            folder, labels = tmp_path / "prometheus", {"namespace": NAMESPACE}
            server = stack.enter_context(prometheus.prometheus(folder, addresses, labels))
            await until_true(lambda: {target["health"] for target in server.targets()} == {"up"})
            await learn(running)
            gateway = addresses[-1]
            await until_full(server, gateway)
            assert {rule["health"] for rule in server.rules()} == {"ok"}
            assert len(server.rules()) == len(monitoring.rules())
            assert server.alerts("firing") == set()
            assert [query for query in keda_queries() if not server.values(query)] == []
        gone = {f"CombeeGone {address.removeprefix('http://')}" for address in addresses}
        await until_true(lambda: gone <= server.alerts("pending") | server.alerts("firing"))


def scraped(running: Running) -> list[str]:
    """Return where each service serves its metrics, the gateway last."""
    gateway = (running.supervisor.folder / "gateway.ready").read_text().strip()
    services = {name: one for name, one in running.supervisor.addresses().items() if name != "gateway"}
    return [*services.values(), gateway]


async def learn(running: Running) -> None:
    new = traces(COUNT, seed=3)
    async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
        await running.log.produce(*map(outgoing, new.values()), topics.OUTCOMES.record(SAID))
        await running.learning().settle(tracker, new, stall_s=STALL_S)


def empty(server: Prometheus) -> list[str]:
    """Return the panels that show nothing, where they should."""
    queries = [query for query in monitoring.queries() if query.where in PANELS]
    return [
        f"{query.where}: {query.expression}"
        for query in queries
        if not any(name.startswith(tuple(SILENT)) for name in monitoring.used(query.expression))
        and all(map(math.isnan, server.values(query.expression)))
    ]


PANELS = frozenset(panel["title"] for panel in monitoring.panels())


def keda_queries() -> list[str]:
    documents = rendered(str(CHART / "ci" / "scaled-values.yaml"), namespace=NAMESPACE)
    queries = [
        trigger["metadata"]["query"]
        for document in documents
        if document["kind"] == "ScaledObject"
        for trigger in document["spec"]["triggers"]
    ]
    assert queries
    return queries


async def until_full(server: Prometheus, gateway: str) -> None:
    try:
        await until_true(lambda: bool(page(f"{gateway}/v1/playbooks")) and not empty(server))
    except TimeoutError:
        raise AssertionError(f"these panels show nothing: {empty(server)}") from None


async def until_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(STALL_S):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - a server tells nobody
            await asyncio.sleep(0.5)
