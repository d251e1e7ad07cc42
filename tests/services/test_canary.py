"""A canary ends in one verdict that follows from proven outcomes, whatever dies, and closes at its deadline."""

import asyncio

import pytest

from combee.adapters.memory import MemoryLog
from combee.control.canaries import Canaries
from combee.core.gate.canary_fold import Canary
from combee.core.gate.policy import CanaryPolicy, GatePolicy
from combee.core.names.sources import KnownSources, with_secret
from combee.process.worker.provenance import Provenance
from combee_schemas import topics
from combee_schemas.canary import CanaryStatistics
from combee_schemas.gate import Decision, Verdict
from combee_schemas.outcome import Outcome
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Label
from support import ledger
from support.canaries import SCORER, of_callers, signed
from support.clock import ManualClock
from support.deployment import CONTROL, Deployment
from support.gates import batch, command, contents, decisions, labels, places, send
from support.killed import killed_at_each_write
from support.ledger import NAME, outgoing
from support.planned import PlanningDeployment
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")

DEADLINE_S = 3_600.0
POLICY = CanaryPolicy(share=0.5, margin=0.3, within_ms=round(DEADLINE_S * 1000))
KNOWN = Provenance(KnownSources(checks={"scorer": ("secret", with_secret(SCORER.secret or b""))}))


def outcomes(candidate: float, control: float, **fields: str) -> list[Outcome]:
    return of_callers(POLICY.terms(NAME, 2, 1, 0), candidate, control, **fields)


async def begun(said: list[Outcome]) -> Deployment:
    """Return a deployment with a candidate whose canary has begun, and what was said."""
    deployment = Deployment(provenance=KNOWN)
    terms = POLICY.terms(NAME, 2, 1, deployment.clock.now_ms())
    label = Label(playbook=NAME, label=CANDIDATE, version=2, canary=terms)
    await deployment.log.produce(topics.LABELS.record(label), *signed(said))
    return deployment


def verdicts(log: MemoryLog) -> list[Verdict]:
    return [topics.VERDICTS.read(record) for record in ledger.records(log, topics.VERDICTS)]


def statistics(log: MemoryLog) -> CanaryStatistics:
    read = map(topics.CANARY_STATISTICS.read_or_none, ledger.records(log, topics.OUTCOME_STATISTICS))
    return [each for each in read if each][-1].model_copy(update={"updated_at_ms": 0})


def over(deployment: Deployment) -> bool:
    return not ledger.behind(deployment.log, {CONTROL: (topics.OUTCOMES,)})


async def folded(deployment: Deployment) -> Deployment:
    async with deployment.running([CONTROL]):
        await deployment.until(lambda: over(deployment))
    return deployment


async def test_without_proof_nothing_is_decided_and_the_statistics_say_why() -> None:
    deployment = await folded(await begun(outcomes(0.95, 0.1, source="anybody")))
    assert verdicts(deployment.log) == []
    assert statistics(deployment.log).unproven == 150


async def test_a_service_killed_at_any_write_counts_each_caller_once_and_says_the_same() -> None:
    said = outcomes(0.2, 0.9)
    whole = statistics((await folded(await begun(said))).log)
    deaths = 0
    async for at, deployment in killed_at_each_write(CONTROL, lambda: begun(said), over):
        deaths += 1
        assert statistics(deployment.log) == whole, f"killed at point {at}"
        # Said again by another life: of one judge the first verdict counts.
        said_of = {(each.candidate, each.accepts, each.reason) for each in verdicts(deployment.log)}
        assert len(said_of) == 1, f"killed at point {at}"
    assert deaths >= 5


async def test_what_a_candidate_that_is_over_was_said_of_decides_nothing() -> None:
    deployment = await begun(outcomes(0.2, 0.9))
    key = topics.LABELS.key_of(Label(playbook=NAME, label=CANDIDATE, version=2)).decode()
    await deployment.log.produce(topics.LABELS.tombstone(key))
    await folded(deployment)
    assert verdicts(deployment.log) == []


async def test_a_canary_that_began_anew_while_a_verdict_was_written_is_judged_too() -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    canaries = Canaries(log, clock)

    async def begin(control: int) -> Canary:
        terms = POLICY.terms(NAME, 2, control, 0)
        label = Label(playbook=NAME, label=CANDIDATE, version=2, canary=terms)
        await log.produce(topics.LABELS.record(label))
        await until(lambda: canaries.terms(NAME) == terms)
        return Canary(playbook=NAME, terms=terms)

    following = asyncio.create_task(canaries.labels.run())
    before = await begin(1)
    verdict = canaries.verdict(before)
    assert verdict is not None, "it is late"
    after = await begin(0)
    canaries.written(verdict)
    assert canaries.verdict(after) is not None
    following.cancel()


# ---- with the gate that asks for it


async def gated() -> PlanningDeployment:
    """Return a deployment whose agents read version 1, and of which version 2 is a candidate on its canary."""
    deployment = PlanningDeployment(gates=GatePolicy(judges=("canary",), canary=POLICY), provenance=KNOWN)
    await send(deployment, batch(1), command("promote", label=PRODUCTION, version=1), batch(2))
    return deployment


async def told(deployment: PlanningDeployment, candidate: float, control: float) -> PlanningDeployment:
    """Return it with what the callers say who were shown what they are to be shown."""
    label = labels(deployment.log)[CANDIDATE]
    assert label.canary is not None
    assert (label.version, label.canary.control) == (2, 1)
    await deployment.log.produce(*signed(of_callers(label.canary, candidate, control)))
    return deployment


def settled(deployment: Deployment) -> bool:
    return over(deployment) and decisions(deployment.log)[-1].candidate == 2


async def decided(deployment: PlanningDeployment) -> Decision:
    async with deployment.running(["publish", CONTROL]):
        await deployment.until(lambda: settled(deployment))
    return decisions(deployment.log)[-1]


async def test_a_worse_candidate_is_closed_by_itself_and_its_batch_is_taken_back() -> None:
    deployment = await told(await gated(), 0.2, 0.9)
    decision = await decided(deployment)
    assert (decision.decided, decision.version, decision.taken_back) == ("rejected", 1, 1)
    assert decision.reason.startswith("worse than version 1")
    assert contents(ledger.latest(deployment.log)) == ["lesson 1"]
    assert places(deployment.log) == (1, 0)


async def test_a_good_candidate_becomes_production_by_itself() -> None:
    deployment = await told(await gated(), 0.95, 0.9)
    decision = await decided(deployment)
    assert (decision.decided, decision.version) == ("accepted", 2)
    assert decision.verdicts[0].figures["e_acceptance"] >= 20
    assert places(deployment.log) == (2, 0)


async def test_after_the_deadline_a_candidate_is_closed_and_its_batch_stays_for_the_next() -> None:
    deployment = await gated()
    async with deployment.running(["publish", CONTROL]):
        deployment.advance(DEADLINE_S)
        await deployment.until(lambda: settled(deployment))
        decision = decisions(deployment.log)[-1]
        assert (decision.decided, decision.version, decision.taken_back) == ("rejected", 1, 0)
        assert decision.reason.startswith("not decided by its deadline")
        assert contents(ledger.latest(deployment.log)) == ["lesson 1", "lesson 2"]
        await deployment.log.produce(outgoing(batch(3)))
        await deployment.until(lambda: places(deployment.log) == (1, 3))


@pytest.mark.parametrize("role", [CONTROL, "publish"])
async def test_a_service_killed_at_any_write_decides_once(role: str) -> None:
    deaths = 0

    async def begun_with() -> Deployment:
        return await told(await gated(), 0.2, 0.9)

    async for at, deployment in killed_at_each_write(role, begun_with, settled, beside=[CONTROL]):
        deaths += 1
        found = [each.decided for each in decisions(deployment.log)]
        assert found == ["opened", "moved", "rejected"], f"killed at {at}"
        assert contents(ledger.latest(deployment.log)) == ["lesson 1"], f"killed at {at}"
    assert deaths >= 3
