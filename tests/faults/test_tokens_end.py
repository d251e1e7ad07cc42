"""A broker that closes a connection when its token has ended (KIP-368): everybody goes on with the next token."""

import asyncio
import gc
import json
import threading
from pathlib import Path

import pytest

from combee import AsyncClient, PlaybookView
from support.granted import granted_kafka, of_role, services, user, verb
from support.token_endpoint import TokenEndpoint

LIFE_S = 6.0
TOKENS = 5
"""So many lives of a token each service lives through."""
DEADLINE_S = 180.0
NAME = "support/refunds"


@pytest.mark.timeout(400)
async def test_learning_goes_on_when_the_broker_closes_connections_whose_token_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with granted_kafka(tmp_path) as secured:
        for name, value in of_role(secured, "agents").items():
            monkeypatch.setenv(name, value)
        secured.tokens.life_s = LIFE_S
        await verb(secured, "operators", tmp_path, "topics", "create")
        async with services(secured, tmp_path, "0.05", COMBEE_MAX_WAIT_S="1"):
            published = await _published(secured.tokens)
            for thread in threading.enumerate():
                if thread.name == "combee-sdk":
                    await asyncio.to_thread(thread.join, DEADLINE_S)
            gc.collect()  # what is left open is this test's warning, and not another's
            ledger = json.loads((await verb(secured, "operators", tmp_path, "ledger", "--json")).out)
    assert (ledger["applied"], ledger["violations"]) == (published, [])


async def _published(tokens: TokenEndpoint) -> int:
    """Publish, each time when the last one is learned, until tokens have ended often enough; return how often."""
    published = 0
    versions: asyncio.Queue[PlaybookView] = asyncio.Queue()
    async with AsyncClient() as client, asyncio.timeout(DEADLINE_S):
        await client.playbook(NAME)
        client.on_update(NAME, versions.put_nowait)
        while min(tokens.given.get(user(role), 0) for role in ("shuffle", "publish")) < TOKENS:
            client.publish(playbook=NAME, key_insight=f"When asked for {published}, answer {published}.")
            published += 1
            while (await versions.get()).version < published:
                pass
    return published
