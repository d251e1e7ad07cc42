"""All that people do on a secured cluster, with a model that takes longer than a Kafka session lasts."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from combee import AsyncClient, PlaybookView
from combee.adapters.kafka import KafkaLog
from combee.adapters.ports import Outgoing
from combee.core.log import rights
from combee_schemas.topics import REFLECTIONS
from support.granted import (
    WAYS,
    connection_of,
    grant_all,
    granted_kafka,
    of_role,
    services,
    user,
    verb,
)
from support.secured import SecuredKafka

MODEL_S = "31"
"""Longer than the 30 s of a session, and of most time-outs that somebody could have left at their default."""
LEARNED_S = 300.0
NAME, REPLAYED = "support/refunds", "whatif"


def post(gateway: str, path: str, **body: object) -> None:
    """Send something by HTTP."""
    request = urllib.request.Request(  # noqa: S310 - our own gateway
        f"{gateway}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


async def version(client: AsyncClient, number: int) -> PlaybookView:
    """Wait for a version, as an agent is told of it."""
    arrived: asyncio.Future[PlaybookView] = asyncio.get_running_loop().create_future()

    def tell(view: PlaybookView) -> None:
        if view.version >= number and not arrived.done():
            arrived.set_result(view)

    await client.playbook(NAME)
    client.on_update(NAME, tell)
    async with asyncio.timeout(LEARNED_S):
        return await arrived


async def something_bad(secured: SecuredKafka) -> None:
    """Write what nobody can read, as an agent with a fault would."""
    log = KafkaLog(connection_of(secured, "agents"))
    await log.produce(Outgoing(topic=REFLECTIONS.name, partition=0, key=b"-", value=b"not a reflection"))
    await log.close()


@pytest.mark.timeout(600)
async def test_learning_dead_letters_and_replay_need_no_other_rights_when_the_model_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with granted_kafka(tmp_path) as secured:
        beside = {"operators": secured.principal(user("operators"), WAYS["operators"])}
        await grant_all(secured, [row for row in rights.granted(beside, REPLAYED) if row[0] == "operators"])
        await verb(secured, "operators", tmp_path, "topics", "create")
        async with services(secured, tmp_path, MODEL_S, COMBEE_MAX_WAIT_S="300"):
            gateway = (tmp_path / "gateway.ready").read_text().strip()
            post(
                gateway,
                "/v1/traces",
                playbook=NAME,
                task="A refund.",
                answer="5",
                feedback="6.",
            )
            for name, value in of_role(secured, "agents").items():
                monkeypatch.setenv(name, value)
            async with AsyncClient() as client:
                for number in range(5):
                    client.publish(playbook=NAME, key_insight=f"When asked for {number}, answer {number}.")
                assert (await client.flush()).is_complete
                await something_bad(secured)
                learned = await version(client, 1)
            letters = await verb(secured, "operators", tmp_path, "dlq", "list", "--json")
        replay = await verb(secured, "operators", tmp_path, "replay", NAME, "--to", REPLAYED, "--json")
        ledger = await verb(secured, "operators", tmp_path, "ledger", "--json")
    assert len(learned.entries) >= 1
    assert [letter["origin"]["topic"] for letter in json.loads(letters.out)["dead_letters"]] == [
        REFLECTIONS.name
    ]
    replayed = json.loads(replay.out)
    assert (replayed["plans_differ"], replayed["contents_differ"], replayed["model_calls"]) == ([], [], 0)
    report = json.loads(ledger.out)
    assert (report["violations"], report["applied"]) == ([], 6)
