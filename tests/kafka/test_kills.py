"""kill -9 of all services at once loses nothing and counts nothing twice; tests/faults kills each of them."""

from pathlib import Path

import pytest

from combee.assembly.local.stack import SIMULATED_EMBEDDING
from support.broker import Broker
from support.faults.kills import survives_kills


@pytest.mark.timeout(180)
async def test_killed_services_lose_and_double_nothing_and_consolidate_each_growth_once(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    batches, _ = await survives_kills(
        kafka.bootstrap_servers,
        topic_prefix,
        tmp_path,
        target="all",
        kills=2,
        seed=2,
        batch_size=20,
        consolidate_above=0.2,
        playbook_tokens=2_000,
        embedding_model="any",
    )
    automatic = [batch for batch in batches if batch.plan.automatic]
    assert automatic
    assert {batch.plan.reason for batch in automatic} == {"consolidate"}
    bases = [batch.plan.base_version for batch in automatic]
    assert len(set(bases)) == len(bases)
    assert {batch.embeddings for batch in automatic} == {SIMULATED_EMBEDDING}
