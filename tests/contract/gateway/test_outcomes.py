"""Outcomes over HTTP: sent like traces, more than one of a run, and read with their intervals."""

import pytest

from combee_schemas import topics
from combee_schemas.outcome import Figures, Outcome, OutcomeStatistics, VersionOutcomes
from support.gateway import CONFIGURED, READER, WRITER, Asked, asked, bearer, version
from support.ledger import read_all

NAME = "support/refunds"
OUTCOME = {"run_id": "t1", "playbook": NAME, "success": True, "shown": {"version": 2}}


async def written(gateway: Asked) -> list[Outcome]:
    return [topics.OUTCOMES.read(record) for record in await read_all(gateway.log, topics.OUTCOMES)]


async def test_outcomes_are_acknowledged_and_a_run_may_have_several() -> None:
    late = {"run_id": "t1", "playbook": NAME, "score": {"reward": 0.5}}
    async with asked() as gateway:
        answers = [
            await gateway.client.post("/v1/outcomes", json=body) for body in (OUTCOME, late, [OUTCOME, late])
        ]
        assert [answer.status_code for answer in answers] == [202, 202, 202]
        assert [item["status"] for item in answers[2].json()["items"]] == ["repeated", "repeated"]
        found = await written(gateway)
    assert [(each.run_id, each.success, each.score) for each in found] == [
        ("t1", True, {}),
        ("t1", None, {"reward": 0.5}),
    ]
    assert all(each.created_at_ms for each in found)
    assert {each.caller for each in found} == {""}


async def test_an_outcome_with_a_key_and_no_caller_is_of_the_keys_name() -> None:
    async with asked(**CONFIGURED) as gateway:
        for body in (OUTCOME, {**OUTCOME, "run_id": "t2", "caller": "u-7"}):
            answer = await gateway.client.post("/v1/outcomes", json=body, headers=bearer(WRITER))
            assert answer.status_code == 202
        assert {each.run_id: each.caller for each in await written(gateway)} == {"t1": "agents", "t2": "u-7"}
        foreign = {**OUTCOME, "playbook": "legal/cases"}
        answer = await gateway.client.post("/v1/outcomes", json=foreign, headers=bearer(WRITER))
        assert answer.status_code == 403
        answer = await gateway.client.post("/v1/outcomes", json=OUTCOME, headers=bearer(READER))
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "wrong",
    [
        {"run_id": None},
        {"run_id": ""},
        {"success": "yes"},
        {"score": {"x": "high"}},
        {"sucess": True},
        {"playbook": f"{NAME}@short"},
    ],
)
async def test_what_is_no_outcome_is_refused(wrong: dict[str, object]) -> None:
    async with asked() as gateway:
        answer = await gateway.client.post("/v1/outcomes", json={**OUTCOME, **wrong})
        assert answer.status_code == 422
        assert await written(gateway) == []


async def test_outcomes_are_read_by_version_and_of_no_version_that_there_is_not() -> None:
    figures = Figures(runs=4, successes=2, failures=1, unscored=1)
    told = OutcomeStatistics(
        line=NAME, versions=tuple(VersionOutcomes(version=at, figures=figures) for at in (1, 2, 99))
    )
    async with asked() as gateway:
        await gateway.knows(version(NAME, 1), version(NAME, 2))
        nothing = (await gateway.client.get(f"/v1/playbooks/{NAME}/outcomes")).json()
        assert nothing["versions"] == []
        await gateway.log.produce(topics.OUTCOME_STATISTICS.record(told))
        gateway.context.outcomes._known = None  # it was read a moment ago
        found = (await gateway.client.get(f"/v1/playbooks/{NAME}/outcomes")).json()
        assert [each["version"] for each in found["versions"]] == [1, 2]
        newest = found["versions"][-1]
        assert (newest["runs"], newest["unscored"], newest["success"]["n"]) == (4, 1, 3)
        assert newest["success"]["low"] < newest["success"]["mean"] < newest["success"]["high"]
        assert (await gateway.client.get("/v1/playbooks/none/outcomes")).status_code == 404
