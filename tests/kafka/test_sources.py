"""Sources on a real broker, with real processes: proven, unproven and forged, and a flood that waits its turn."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from combee.adapters.ports import Outgoing
from combee.core.names.identity import derived_ids
from combee.core.names.sources import UNPROVEN, secret_proof
from combee.log.history import newest_playbooks
from combee.log.inspection.audit import audit
from combee.log.inspection.lineage import lineage
from combee.sdk import Client
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from support.broker import Broker
from support.gateway import bearer
from support.running import PLAYBOOK, Running, running_stack, traces, until_applied

SHOP, OTHER, KEY = "the secret of the shop", "somebody else's secret", "k" * 24
SIZE = 12
FLOOD = 30


def reflection(number: int, source: str = "") -> Outgoing:
    made = Reflection(
        reflection_id=f"r-{number}",
        playbook=PLAYBOOK,
        key_insight=f"lesson {number} of somebody",
        source=Source(name=source) if source else None,
    )
    return topics.REFLECTIONS.record(made)


def signed(record: Outgoing, secret: str) -> Outgoing:
    header = secret_proof(secret.encode(), record.topic, "shop", record.value or b"")
    return Outgoing(topic=record.topic, key=record.key, value=record.value, headers=(header,))


def settings(folder: Path) -> dict[str, Any]:
    sources, keys = folder / "sources.toml", folder / "keys.json"
    sources.write_text(
        f'services_secret = "what the services share"\n[[sources]]\nname = "shop"\nsecret = "{SHOP}"\n'
    )
    keys.write_text(json.dumps([{"name": "web", "key": KEY, "scopes": ["reflections:write"]}]))
    return {
        "sources_file": sources,
        "gateway_keys_file": keys,
        "gateway_port": 0,
        "dashboard": False,
        "trust": "team",
        "batch_size": SIZE,
        "max_wait_s": 1.0,
        "metrics_port": 0,
    }


async def newest(running: Running) -> Playbook | None:
    return (await newest_playbooks(running.log)).get(PLAYBOOK)


@pytest.mark.timeout(300)
async def test_what_is_proven_counts_and_what_is_forged_or_claimed_is_unproven(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    where = (kafka.bootstrap_servers, topic_prefix)
    roles = ("control", "publish", "scan", "shuffle", "reflect", "gateway")
    async with running_stack(*where, tmp_path, latency="0", roles=roles, **settings(tmp_path)) as running:
        address = (tmp_path / "stack" / "gateway.ready").read_text()
        # The shop's client, the gateway's key, and a trace that the shop has signed.
        client = Client(kafka.bootstrap_servers, prefix=topic_prefix, source="shop", source_secret=SHOP)
        client.publish(playbook=PLAYBOOK, reflection_id="r-client", key_insight="lesson of the shop")
        await asyncio.to_thread(client.close)
        async with httpx.AsyncClient(base_url=address, headers=bearer(KEY)) as web:
            body = {"playbook": PLAYBOOK, "reflection_id": "r-web", "key_insight": "lesson of the web"}
            answer = await web.post("/v1/reflections", json={**body, "source": {"name": "shop"}})
            assert answer.status_code == 202, answer.text
        (trace,) = traces(1, 1).values()
        sourced: Trace = trace.model_copy(update={"source": Source(name="shop")})
        await running.log.produce(signed(topics.TRACES.record(sourced), SHOP))
        await until_applied(running.log, 3)
        # Claims, forgeries and those that say nothing; then two lessons of the shop.
        flood = [reflection(number, ("", "shop", "desk")[number % 3]) for number in range(FLOOD)]
        forged = [signed(reflection(number, "shop"), OTHER) for number in range(FLOOD, FLOOD + 3)]
        mine = [signed(reflection(number, "shop"), SHOP) for number in (900, 901)]
        await running.log.produce(*flood, *forged, *mine)
        await until_applied(running.log, 3 + FLOOD + 3 + 2)
        batches = [each for each in await running.messages(topics.BATCHES) if isinstance(each, Batch)]
        named = {
            member.reflection_id: (member.source.name, member.source.proven)
            for batch in batches
            for member in batch.members
            if member.source and member.source.proven
        }
        report, version = await audit(running.log), await newest(running)
        assert version is not None
        entry = next(entry for entry in version.entries if "r-900~by~shop" in entry.evidence)
        origins = await lineage(running.log, PLAYBOOK, entry.id, traces=False, on_progress=lambda *_: None)
    assert named == {
        "r-client~by~shop": ("shop", "secret"),
        "r-web~by~key:web": ("key:web", "gateway"),
        derived_ids(PLAYBOOK, trace.trace_id, "shop")[0]: ("shop", "secret"),
        "r-900~by~shop": ("shop", "secret"),
        "r-901~by~shop": ("shop", "secret"),
    }
    assert {source.name for source in version.taught_by} == {"shop", "key:web", UNPROVEN}
    assert [source.taught_by and source.taught_by.proven for source in origins.sources] == ["secret"]
    assert (report.good, report.lost, report.double) == (True, 0, 0)
