"""The source of what comes over HTTP is the key that it came with, whatever the body claims."""

import json
from pathlib import Path
from typing import Any

from combee.adapters.ports import Record
from combee.core.names.sources import KnownSources, with_secret
from combee.process.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.base import Source
from support import ledger
from support.deployment import Deployment
from support.gateway import CONFIGURED, KEYS, WRITER, asked, bearer
from support.ledger import read_all

SERVICES, OTHER = "what the services share", "o" * 24
LESSON = {"playbook": "support/refunds", "key_insight": "check the date"}
TWO_WRITERS = json.dumps([*KEYS, {"name": "others", "key": OTHER, "scopes": ["reflections:write"]}])


def sources_file(folder: Path) -> Path:
    path = folder / "sources.toml"
    path.write_text(f'services_secret = "{SERVICES}"\n')
    return path


def proven(record: Record) -> Source | None:
    topic = next(each for each in topics.TOPICS if each.name == record.topic)
    message: Any = topic.read(record)
    known = KnownSources(services=with_secret(SERVICES.encode()))
    effective = known.effective(record.topic, record.value or b"", record.headers, message.source)
    assert not effective.is_forged
    return effective.source


async def test_a_key_s_name_is_the_source_and_it_is_proven_to_the_services(tmp_path: Path) -> None:
    claimed = {"name": "key:operators", "proof": "mine", "proven": "key"}
    async with asked(**CONFIGURED, sources_file=sources_file(tmp_path), key=WRITER) as gateway:
        for path, body in (
            ("reflections", {**LESSON, "source": claimed}),
            ("traces", {"playbook": "support/refunds", "task": "t", "source": claimed}),
            ("outcomes", {"playbook": "support/refunds", "run_id": "r", "success": True, "source": claimed}),
        ):
            assert (await gateway.client.post(f"/v1/{path}", json=body)).status_code == 202
        records = [
            record
            for topic in (topics.REFLECTIONS, topics.TRACES, topics.OUTCOMES)
            for record in await read_all(gateway.log, topic)
        ]
    assert [proven(record) for record in records] == [Source(name="key:agents", proven="gateway")] * 3


async def test_without_the_services_secret_the_key_s_name_is_a_claim() -> None:
    async with asked(**CONFIGURED, key=WRITER) as gateway:
        await gateway.client.post("/v1/reflections", json=LESSON)
        (record,) = await read_all(gateway.log, topics.REFLECTIONS)
    assert (topics.REFLECTIONS.read(record).source, record.headers) == (Source(name="key:agents"), ())


async def test_what_two_keys_say_in_the_same_words_are_two_reflections() -> None:
    async with asked(gateway_keys=TWO_WRITERS) as gateway:
        answers = [
            (await gateway.client.post("/v1/reflections", json=LESSON, headers=bearer(key))).json()
            for key in (WRITER, OTHER, WRITER)
        ]
    assert [answer["items"][0]["status"] for answer in answers] == ["accepted", "accepted", "repeated"]
    assert len({answer["items"][0]["id"] for answer in answers}) == 2


async def test_where_there_are_no_keys_a_name_stays_as_it_was_declared(tmp_path: Path) -> None:
    async with asked(sources_file=sources_file(tmp_path)) as gateway:
        await gateway.client.post(
            "/v1/reflections", json={**LESSON, "source": {"name": "shop", "proven": "key"}}
        )
        (record,) = await read_all(gateway.log, topics.REFLECTIONS)
    assert proven(record) == Source(name="shop")


async def test_without_a_key_nobody_takes_or_repeats_an_id_of_a_key_by_claiming_a_proof(
    tmp_path: Path,
) -> None:
    """Else the key's own lesson would be refused as other content, or answered as repeated and never written."""
    keys = (
        'anybody = ["reflections:write"]\n'
        f'[[keys]]\nname = "agents"\nkey = "{WRITER}"\nscopes = ["reflections:write"]\n'
    )
    forged: dict[str, Any] = {"source": {"name": "key:agents", "proven": "gateway"}}
    other, same = {**LESSON, "reflection_id": "r-1"}, {**LESSON, "reflection_id": "r-2"}
    async with asked(gateway_keys=keys, sources_file=sources_file(tmp_path)) as gateway:
        for claim in ({**other, **forged, "key_insight": "words of somebody"}, {**same, **forged}):
            assert (await gateway.client.post("/v1/reflections", json=claim)).status_code == 202
        for own in (other, same):
            answer = await gateway.client.post("/v1/reflections", json=own, headers=bearer(WRITER))
            assert answer.json()["items"][0]["status"] == "accepted"
        records = await read_all(gateway.log, topics.REFLECTIONS)
    owners = [source.proven for record in records if (source := proven(record))]
    assert sorted(owners) == ["", "", "gateway", "gateway"]


async def test_two_keys_may_use_one_id_and_each_is_told_of_its_own(tmp_path: Path) -> None:
    known = KnownSources(services=with_secret(SERVICES.encode()))
    scopes = ["reflections:write", "playbooks:read"]
    keys = json.dumps(
        [
            {"name": "agents", "key": WRITER, "scopes": scopes},
            {"name": "others", "key": OTHER, "scopes": scopes},
        ]
    )
    deployment = Deployment(batch_size=2, provenance=Provenance(known), sources="proven")
    async with (
        asked(deployment.log, gateway_keys=keys, sources_file=sources_file(tmp_path)) as gateway,
        deployment.running(),
    ):

        async def post(key: str, words: str) -> int:
            lesson = {**LESSON, "reflection_id": "r-1", "key_insight": words}
            answer = await gateway.client.post("/v1/reflections", json=lesson, headers=bearer(key))
            return answer.status_code

        assert await post(OTHER, "words of others") == 202
        assert await post(WRITER, "words of agents") == 202
        assert await post(WRITER, "other words of agents") == 409, "its own id has other content"
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
        for key, own, other in ((WRITER, "agents", "others"), (OTHER, "others", "agents")):
            answer = await gateway.client.get(
                "/v1/reflections/r-1", params={"playbook": LESSON["playbook"]}, headers=bearer(key)
            )
            status = answer.json()
            assert (status["reflection_id"], status["state"]) == ("r-1", "applied")
            assert f"this is r-1~by~key:{own}" in status["detail"]
            assert f"other sources have sent r-1~by~key:{other}" in status["detail"]
            (entry,) = status["entries"]
            (lesson,) = (e for e in ledger.latest(deployment.log).entries if e.id == entry)
            assert lesson.content == f"words of {own}"
        answer = await gateway.client.get(
            "/v1/reflections/r-1~by~key:others",
            params={"playbook": LESSON["playbook"]},
            headers=bearer(WRITER),
        )
        assert "other sources" not in answer.json()["detail"]
