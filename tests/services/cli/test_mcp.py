"""What an assistant that is connected to Kafka is told: no more than agents read."""

import pytest

from combee.adapters.ports import PoisonError
from combee.cli.mcp import LogDeployment
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.names.sources import Signer
from combee.sdk import AsyncClient
from combee.sdk.transport import LogTransport
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.records import PROOF_HEADER, header
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")


async def why(deployment: Deployment, content: str) -> str:
    """Return what an assistant is told of the entry that said this at first."""
    first = ledger.versions(deployment.log)[0]
    (entry,) = (entry for entry in first.entries if entry.content == content)
    async with AsyncClient(transport=lambda: LogTransport(deployment.log)) as client:
        return "\n".join(await LogDeployment(deployment.log, client).why(NAME, entry.id))


async def learned(gates: GatePolicy = NO_GATE) -> Deployment:
    deployment = Deployment(batch_size=3, gates=gates)
    said = (reflection(1), reflection(2), reflection(3, key_insight="lesson 1", reasoning="poison"))
    async with deployment.running():
        await deployment.log.produce(*map(outgoing, said))
        await deployment.until(lambda: bool(ledger.versions(deployment.log)))
    return deployment


async def test_nothing_that_is_revoked_is_told_of_an_entry() -> None:
    deployment = await learned()
    assert "r-3" in await why(deployment, "lesson 1")
    revoke = Command(command_id="c", playbook=NAME, kind="revoke", reflection_ids=("r-2", "r-3"))
    async with deployment.running():
        await deployment.log.produce(outgoing(revoke))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    told = await why(deployment, "lesson 1")
    assert "r-1" in told
    assert "r-3" not in told
    with pytest.raises(PoisonError, match="has no entry"):
        await why(deployment, "lesson 2")


async def test_nothing_is_told_of_what_waits_at_a_gate() -> None:
    deployment = await learned(GatePolicy(judges=("approve",)))
    with pytest.raises(Exception, match="no version of support/refunds has passed its gate yet"):
        await why(deployment, "lesson 1")


async def test_what_it_publishes_bears_the_proof_of_its_source() -> None:
    """It did not sign, so public playbooks ignored the lessons of a source whose secret it had."""
    deployment = Deployment()
    async with AsyncClient(transport=lambda: LogTransport(deployment.log)) as client:
        signer = Signer(name="shop", secret=b"16 characters and more")
        await LogDeployment(deployment.log, client, signer).send(reflection(1))
    (record,) = ledger.records(deployment.log, topics.REFLECTIONS)
    assert header(record.headers, PROOF_HEADER)
