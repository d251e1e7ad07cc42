"""Playbooks far above the default budget, through all services: imports stay whole, and batches end in versions."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from combee.adapters.ports import PromptTooLongError
from combee.core.commands import import_
from combee.core.formats.files import read_playbook
from combee.core.playbook.budget import needed_tokens
from combee.core.playbook.versions import empty
from combee.core.text.prompt import estimate_tokens
from combee_schemas.model import Prompt
from combee_schemas.playbook import MAX_BUDGET_TOKENS, Entry, Playbook
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo, is_combine

pytestmark = pytest.mark.usefixtures("quick_polls")

BATCHES = 20
DEADLINE_S = 60.0
APPWORLD = 318, 29_000
"""Entries and tokens of the playbook that ACE released, about."""
WORDS = ["".join(pair) for pair in zip("bdfgklmnprst" * 12, "aeiou" * 30, "lmnrst" * 24, strict=False)]


def generated(count: int, tokens: int) -> Playbook:
    """Return a playbook of so many different entries, of about so many tokens together."""
    drawing = Random(0)
    each = tokens * 4 // count - 20
    contents = [" ".join(drawing.choice(WORDS) for _ in range(each // 4)) for _ in range(count)]
    entries = tuple(
        Entry(id=f"shr-{n:05d}", section="HARD RULES", content=f"{content}.")
        for n, content in enumerate(contents, 1)
    )
    return empty(NAME).model_copy(update={"entries": entries, "sections": ("HARD RULES",)})


async def imported(deployment: Deployment, given: Playbook) -> Playbook:
    command = import_(empty(NAME), given, "ace", None)
    assert command is not None
    await deployment.log.produce(outgoing(command))
    await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
    return ledger.latest(deployment.log)


async def survives(given: Playbook) -> None:
    """Import a playbook that the default budget does not hold, and learn in twenty batches."""
    deployment = Deployment(batch_size=2, small_batches="one-call")
    async with deployment.running():
        before = await imported(deployment, given)
        assert needed_tokens(before.entries, before.sections) > deployment.budget_tokens
        for n in range(BATCHES):
            said = (
                reflection(2 * n + k, key_insight=f"new lesson {2 * n + k}: {'x' * 400}") for k in range(2)
            )
            await deployment.log.produce(*map(outgoing, said))
            await deployment.until(lambda n=n: ledger.applied(deployment.log) == 2 * n + 2, DEADLINE_S)  # type: ignore[misc]
    after = ledger.latest(deployment.log)
    contents = {entry.id: entry.content for entry in after.entries}
    assert {entry.id: entry.content for entry in before.entries}.items() <= contents.items()
    assert len(after.entries) == len(before.entries) + 2 * BATCHES
    manifests = {batch.plan.settings.playbook_tokens for batch in ledger.batches(deployment.log)}
    assert manifests == {before.budget_tokens}
    assert f"its budget is {before.budget_tokens}" in deployment.model.prompts[-1].system


@pytest.mark.shared
async def test_ace_s_released_playbook_survives_twenty_batches_whole(shared: Path) -> None:
    text = (shared / "data" / "playbook_appworld_offline.txt").read_text("utf-8")
    given = read_playbook(text, "ace", name=NAME)
    assert len(given.entries) == APPWORLD[0]
    await survives(given)


async def test_a_large_import_survives_twenty_batches_whole() -> None:
    await survives(generated(*APPWORLD))


async def test_batches_of_playbooks_without_a_budget_of_their_own_state_the_configured_one() -> None:
    deployment = Deployment(batch_size=2, small_batches="one-call")
    async with deployment.running():
        await imported(deployment, generated(20, 2_000))
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(2)))
        await deployment.until(lambda: ledger.applied(deployment.log) == 2)
    (batch,) = ledger.batches(deployment.log)
    assert batch.plan.settings.playbook_tokens == deployment.budget_tokens


@pytest.mark.parametrize("window_tokens", [128_000, 88_000, 40_000])
async def test_a_batch_on_the_largest_playbook_ends_in_a_version_and_keeps_every_lesson(
    window_tokens: int,
) -> None:
    """The smallest window does not hold the playbook, the next one no combine or group as planned."""

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        if estimate_tokens(prompt.system + prompt.user) > window_tokens:
            raise PromptTooLongError("too long")
        return echo(prompt)

    count = 40
    deployment = Deployment(model=ScriptedModel(answer), batch_size=count, budget_tokens=MAX_BUDGET_TOKENS)
    async with deployment.running():
        before = await imported(deployment, generated(700, 70_000))
        said = [
            reflection(n, key_insight=f"lesson {n} {chr(97 + n % 26) * 50}", reasoning="because " * 400)
            for n in range(count)
        ]
        await deployment.log.produce(*map(outgoing, said))
        await deployment.until(lambda: ledger.applied(deployment.log) == count, DEADLINE_S)
    assert ledger.dead_letters(deployment.log) == []
    entries = {entry.content for entry in ledger.latest(deployment.log).entries}
    assert {each.key_insight for each in said} <= entries
    assert {entry.content for entry in before.entries} <= entries
    largest = max(estimate_tokens(prompt.system + prompt.user) for prompt in deployment.model.prompts)
    assert largest > MAX_BUDGET_TOKENS * 0.8
    assert any(map(is_combine, deployment.model.prompts))
