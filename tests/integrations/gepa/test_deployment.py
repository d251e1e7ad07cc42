"""GEPA with a running Combee as its reflection strategy."""

from types import SimpleNamespace
from typing import Any, Protocol, cast

import pytest
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionProposal

from combee.adapters.ports import TransientError
from combee.integrations.gepa import DeployedReflectionLM
from combee.integrations.gepa.deployment import _Run
from combee_schemas.reflection import Reflection

RULES = ("Round to two decimals.", "Give percentages as numbers.", "Subtract the fee first.")


class Deployment(Protocol):
    """As ../conftest.py has it."""

    http: str
    kafka: str


def records(count: int) -> list[dict[str, Any]]:
    return [
        {
            "Inputs": {"question": f"q{n}"},
            "Generated Outputs": f"a{n}",
            "Feedback": f"Wrong. {RULES[n % len(RULES)]}",
        }
        for n in range(count)
    ]


def test_a_proposal_is_a_version_of_the_components_playbook(deployment: Deployment) -> None:
    strategy = DeployedReflectionLM(deployment.http, "tests/program")

    proposal, successor = strategy.reflect({"rule": "Answer."}, {"rule": records(9)}, ["rule", "ghost"])
    strategy.close()

    assert successor is strategy
    assert proposal.new_texts["rule"] != "Answer."
    told = proposal.metadata
    assert told["combee:rule:k"] == 3
    assert told["combee:rule:num_lm_calls"] == told["combee:total_lm_calls"] == 4
    assert told["combee:rule:mode"] == "map_reduce"
    assert told["combee:rule:playbook"] == "tests/program/rule"
    assert strategy.total_tokens_in > 0


def test_jobs_begin_with_their_own_candidates_and_run_side_by_side(deployment: Deployment) -> None:
    strategy = DeployedReflectionLM(deployment.http, "tests/several")
    jobs = [({"rule": f"Answer {n}."}, {"rule": records(4)}, ["rule"]) for n in range(2)]

    first = [proposal.metadata for proposal, _ in strategy.reflect_many(jobs)]
    again = [proposal.metadata for proposal, _ in strategy.reflect_many(jobs)]
    strategy.close()

    assert [told["combee:rule:playbook"] for told in first] == ["tests/several/rule", "tests/several/rule/1"]
    assert all(
        later["combee:rule:version"] > earlier["combee:rule:version"]
        for earlier, later in zip(first, again, strict=True)
    )


async def test_records_leave_without_personal_data_and_secrets() -> None:
    sent: list[Reflection] = []

    class Sending:
        async def send(self, *given: Any, **_: Any) -> Any:
            if isinstance(given[0], str):
                return SimpleNamespace(version=1)
            sent.extend(given[0])
            raise TransientError("the test ends here")

    run = _Run(cast("Any", Sending()), cast("Any", Sending()))
    record = {"Inputs": {"to": "ann@example.org"}, "Feedback": "password=hunter2222"}
    with pytest.raises(TransientError, match="the test ends here"):
        await run.propose("p/rule", "rule", "Answer.", [record], ReflectionProposal(new_texts={}))
    assert sent[0].side_info == {"Inputs": '{"to": "[email]"}', "Feedback": "password=***"}


def test_kafkas_address_is_refused(deployment: Deployment) -> None:
    with pytest.raises(ValueError, match="gateway"):
        DeployedReflectionLM(deployment.kafka)
