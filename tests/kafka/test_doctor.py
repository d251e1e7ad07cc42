"""The doctor as a process of its own on a real broker, and what real workers serve."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from prometheus_client.parser import text_string_to_metric_families

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.connection import Connection
from combee.adapters.kafka.probe import PROBE_TOPIC, open_transactions, skew
from combee.adapters.ports import Outgoing
from combee.assembly import compose
from combee.log.inspection.lag import INPUTS, Lags
from combee.log.inspection.tracker import Tracker
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.batch import Batch
from combee_schemas.codec import encode
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.outcome import Outcome
from combee_schemas.topics import outgoing
from support import monitoring
from support.broker import Broker
from support.cli import combee
from support.flat import flat
from support.running import PLAYBOOK, Running, created, running_stack, traces

COUNT = 40
STALL_S = 60.0
CALLS = re.compile(r'^combee_model_call_seconds_count{outcome="answered"} ([0-9.]+)$', re.MULTILINE)


async def doctor(broker: Broker, prefix: str, folder: Path, *, code: int, **env: str) -> dict[str, Any]:
    """Run it; return verdict, text and remedy by check, joined where there are several of a name."""
    ended = await combee(
        "doctor",
        "--json",
        "--timeout",
        "30",
        data_dir=folder,
        COMBEE_BOOTSTRAP_SERVERS=broker.bootstrap_servers,
        COMBEE_TOPIC_PREFIX=prefix,
        **env,
    )
    assert ended.code == code, ended.out + ended.err
    found: dict[str, Any] = {}
    for check in ended.json()["checks"]:
        text = f"{check['verdict']} {check['says']} → {check['remedy']}"
        found[check["name"]] = f"{found[check['name']]}; {text}" if check["name"] in found else text
    return found


@pytest_asyncio.fixture
async def log(kafka: Broker, topic_prefix: str) -> AsyncIterator[KafkaLog]:
    """Yield a log whose topics are there and where no worker has ever run."""
    async with created(load_settings(topic_prefix=topic_prefix), kafka.bootstrap_servers) as log:
        yield log


async def test_without_topics_it_says_how_to_make_them(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    found = await doctor(kafka, topic_prefix, tmp_path, code=1)
    assert found["topics"].startswith("fail there are none yet → run 'combee topics create'")
    assert found["broker"].startswith("ok Kafka ")
    assert found["lag"].startswith("skip")


async def test_what_waits_and_nobody_works_on_is_named(
    kafka: Broker, topic_prefix: str, tmp_path: Path, log: KafkaLog
) -> None:
    await log.produce(*map(outgoing, traces(3, seed=1).values()))
    batch = flat(
        Batch,
        batch_id="b",
        playbook=PLAYBOOK,
        sequence=1,
        seed=0,
        members=(),
        copies=1,
        widths=(1,),
        base_version=0,
        through_offset=0,
        reason="size",
        batch_size=1,
        closed_at_ms=SystemClock().now_ms() - 10_000_000,
    )
    letter = DeadLetter(
        origin_topic="traces",
        origin_partition=0,
        origin_offset=0,
        service="reflect",
        reason="cannot be read: api_key=abcdefgh12345",
    )
    await log.produce(
        Outgoing(topic=topics.BATCHES.name, key=PLAYBOOK.encode(), value=encode(batch)),
        Outgoing(topic=topics.DEAD_LETTERS.name, key=b"traces", value=encode(letter)),
    )
    found = await doctor(kafka, topic_prefix, tmp_path, code=1, COMBEE_SECRET_PASSWORD="not-printed-either")  # noqa: S106 - made up
    assert found["topics"].startswith(f"ok all {len(topics.TOPICS)}")
    assert re.match(r"fail 3 records wait, the oldest for \d+ s; workers: 0", found["lag of reflect"])
    assert "combee worker reflect" in found["lag of reflect"]
    assert found["lag of scan"].startswith("ok")
    assert f"{PLAYBOOK} #1 (100" in found["batches"]
    assert found["batches"].startswith("fail")
    assert found["dead letters"].startswith("warn 1 in all, 1 open of the last day; the last: cannot be read")
    assert "abcdefgh12345" not in str(found)
    assert "COMBEE_SECRET_PASSWORD is not a setting" in found["settings"]
    assert "not-printed-either" not in str(found)


async def test_a_transaction_that_stays_open_is_named_with_its_place(
    kafka: Broker,
    topic_prefix: str,
    tmp_path: Path,
    log: KafkaLog,  # noqa: ARG001 - makes the topics
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=f"{topic_prefix}.left-open"
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        minutes_ago = SystemClock().now_ms() - 120_000
        await producer.send_and_wait(f"{topic_prefix}.batches", b"-", partition=3, timestamp_ms=minutes_ago)
        found = await doctor(kafka, topic_prefix, tmp_path, code=1)
        await producer.abort_transaction()
    finally:
        await producer.stop()
    assert found["transactions"].startswith("fail open for more than 75 s, and nobody reads past them:")
    assert f"{topic_prefix}.batches[3]@0" in found["transactions"]
    assert "abort --topic TOPIC" in found["transactions"]
    found = await doctor(kafka, topic_prefix, tmp_path, code=0)
    assert found["transactions"].startswith("ok none of these topics stays open")
    assert "ok may stay open for 60 s at most" in found["transactions"]


async def test_the_look_for_open_transactions_hears_of_all_topics_at_once(
    kafka: Broker,
    topic_prefix: str,
    log: KafkaLog,  # noqa: ARG001 - makes the topics
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unknown: list[str] = []
    add_topic = AIOKafkaClient.add_topic

    def noted(client: AIOKafkaClient, topic: str) -> Any:
        unknown.append(topic)
        return add_topic(client, topic)

    monkeypatch.setattr(AIOKafkaClient, "add_topic", noted)
    connected = Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=topic_prefix)
    assert await open_transactions(connected) == {}
    assert unknown == [], "each costs a request, and 0.1 s of waiting"


async def test_comparing_clocks_leaves_nothing_behind(kafka: Broker, topic_prefix: str) -> None:
    connected = Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=topic_prefix)
    found = await skew(connected)
    # The broker runs on this machine.
    assert abs(found.ahead_ms) <= found.within_ms + 20
    assert 0 < found.within_ms < 5_000
    async with asyncio.timeout(STALL_S):
        while f"{topic_prefix}.{PROBE_TOPIC}" in await topic_names(kafka):  # noqa: ASYNC110 - Kafka tells nobody
            await asyncio.sleep(0.1)


async def topic_names(kafka: Broker) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    try:
        return " ".join(await admin.list_topics())
    finally:
        await admin.close()


async def test_real_workers_serve_what_they_did_and_the_doctor_finds_nothing_wrong(
    kafka: Broker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_LOG_JSON", "true")
    new = traces(COUNT, seed=3)
    async with running_stack(
        kafka.bootstrap_servers,
        topic_prefix,
        tmp_path,
        latency="0.02",
        batch_size=20,
        metrics_port=0,
        gateway_port=0,
        roles=(*compose.ROLES, *compose.FRONTS),
    ) as running:
        async with Tracker(running.log, PLAYBOOK, SystemClock()).running() as tracker:
            await running.log.produce(*map(outgoing, new.values()), topics.OUTCOMES.record(SAID))
            await running.learning().settle(tracker, new, stall_s=STALL_S)
        await _all_ready(running)
        await _nothing_waits(running)
        pages = {name: await _page(one, "/metrics") for name, one in running.supervisor.addresses().items()}
        calls = {name: sum(map(float, CALLS.findall(text))) for name, text in pages.items()}
        assert calls["reflect"] + calls["scan"] == len(running.calls())
        assert calls["reflect"] == COUNT
        versions = len(await running.messages(topics.HISTORY))
        assert f'combee_versions_total{{origin="batch"}} {versions}.0' in pages["publish"]
        assert f'combee_retention_ratio{{playbook="{PLAYBOOK}"}}' in pages["publish"]
        assert f'combee_records_written_total{{topic="reflections"}} {COUNT}.0' in pages["reflect"]
        assert f'combee_records_written_total{{topic="batches"}} {versions}.0' in pages["shuffle"]
        assert "combee_build_info{python=" in pages["control"]
        gateway = (running.supervisor.folder / "gateway.ready").read_text().strip()
        await _page(gateway, "/v1/playbooks")
        _have_what_is_watched([*pages.values(), await _page(gateway, "/metrics")])
        url = (running.supervisor.folder / "sim.ready").read_text().strip()
        model = {"COMBEE_MODEL": "simulated", "COMBEE_BASE_URL": url, "COMBEE_API_KEY": "simulated"}
        found = await doctor(kafka, topic_prefix, tmp_path, code=0, **model)
        assert {text.split()[0] for text in found.values()} == {"ok"}
        assert "JSON schema, JSON mode, plain text" in found["model"]
        assert found["lag of scan"] == "ok nothing waits; workers: 1 → "
        logs = {
            name: running.supervisor.log_file(name).read_text() for name in running.supervisor.addresses()
        }
    _are_json(logs)


def _are_json(logs: Mapping[str, str]) -> None:
    """Every line of every service is one JSON object, and says whose it is."""
    events = {name: [json.loads(line) for line in text.splitlines()] for name, text in logs.items()}
    for name, said in events.items():
        assert said
        assert {event["service"] for event in said} == {name}
        assert [event for event in said if {"event", "level", "timestamp"} - event.keys()] == []
    (cut, *_) = [event for event in events["shuffle"] if event["event"] == "batch"]
    (made, *_) = [event for event in events["publish"] if event["event"] == "version"]
    assert (cut["playbook"], cut["batch"]) == (made["playbook"], made["batch"])


SAID = Outcome(run_id="run", playbook=PLAYBOOK, shown=Shown(version=1), success=True)


def _have_what_is_watched(pages: Sequence[str]) -> None:
    """Every metric that dashboard and alerts ask for is served, with the labels that they name."""
    served = monitoring.series(family for page in pages for family in text_string_to_metric_families(page))
    asked = [
        (query.where, name, labels - monitoring.SCRAPED)
        for query in monitoring.queries()
        for name, labels in monitoring.used(query.expression).items()
        if name not in monitoring.FROM_PROMETHEUS
    ]
    assert [(where, name) for where, name, _ in asked if name not in served] == []
    # A counter with labels has none before it counts: nothing was dead-lettered, no session began anew.
    silent = {name for _, name, labels in asked if labels and not served[name]}
    no_gate = {
        name for name in silent if name.startswith(("combee_gate_", "combee_canary_"))
    }  # there is none here
    counted = {"combee_dead_letters_total", "combee_session_restarts_total", "combee_forged_proofs_total"}
    assert silent - no_gate <= counted
    assert [ask for ask in asked if ask[1] not in silent and not ask[2] <= served[ask[1]]] == []


async def _all_ready(running: Running) -> None:
    async with asyncio.timeout(STALL_S):
        for address in running.supervisor.addresses().values():
            while not _is_green(await _page(address, "/readyz")):  # noqa: ASYNC110 - a process tells nobody
                await asyncio.sleep(0.1)


def _is_green(page: str) -> bool:
    return all(line.startswith("ok") for line in page.splitlines())


async def _nothing_waits(running: Running) -> None:
    async with asyncio.timeout(STALL_S):
        for group in INPUTS:
            lags = Lags(running.log, group)
            while any(lag.records for lag in (await lags.look()).values()):  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.1)


async def _page(address: str, path: str) -> str:
    def get() -> str:
        try:
            with urllib.request.urlopen(f"{address}{path}", timeout=5) as answer:  # noqa: S310 - loopback
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read().decode())

    return await asyncio.to_thread(get)
