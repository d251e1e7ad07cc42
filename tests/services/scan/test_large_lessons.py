"""Lessons that no record holds together: what is left out is a dead letter."""

import pytest

from combee_schemas import topics
from combee_schemas.scan import Update
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, batch_of, dead_letters, outgoing, reflection


@pytest.mark.usefixtures("quick_polls")
async def test_lessons_too_large_for_one_record_are_dead_letters_and_never_lost() -> None:
    count = 140
    given = [reflection(n, key_insight=f"lesson{n} " + "x" * 7_900) for n in range(count)]
    deployment = Deployment(batch_size=count, budget_tokens=10**6)
    async with deployment.running():
        await deployment.log.produce(*map(outgoing, given))
        await deployment.until(lambda: bool(ledger.versions(deployment.log)))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, {NAME: given})
    (update,) = ledger.messages(deployment.log, topics.UPDATES, Update)
    kept = {seen.reflection_id for seen in update.result.seen if seen.ok}
    buried = {letter.record_id for letter in dead_letters(deployment.log)}
    assert buried
    assert kept | buried == {f"r-{n}" for n in range(count)}
    assert kept & buried == set()
    assert "operations" in update.result.reason
    assert batch_of(ledger.latest(deployment.log)).degraded
