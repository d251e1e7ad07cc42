"""What becomes of a hostile reply where a whole text is asked for: a documented fate, and no reflection lost."""

from collections.abc import Mapping
from typing import Any

import pytest

from combee.adapters.asking.replies import Answer as Said
from combee.adapters.asking.replies import UnusableError, read_reply
from combee.adapters.openai.model import UnusableReplyError
from combee.core.methods import gepa
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.model import Prompt
from combee_schemas.scan import Partial, Update
from support import ledger
from support.deployment import Deployment
from support.hostile import GEPA_TEXTS
from support.ledger import NAME, batch_of, dead_letters, outgoing, reflection
from support.models import Answer, ScriptedModel
from support.prompts import INSTRUCTION

pytestmark = pytest.mark.usefixtures("quick_polls")

COUNT = 9
PUBLISHED = [reflection(n) for n in range(COUNT)]
LEAF = {"used": "ok", "unusable": "failed"}
ROOT = {"used": "ok", "unusable": "merged"}


def is_combine(prompt: Prompt) -> bool:
    return "\n<version " in prompt.user


def writing(prompt: Prompt) -> Mapping[str, Any]:
    """Write the insights that a group's records hold, or all the versions, one below the other."""
    return {"text": f"```\n{prompt.user.replace('<', '(').replace('>', ')')}\n```"}


def read(name: str, prompt: Prompt) -> Mapping[str, Any]:
    """Read a hostile text as the model client does; asked again, the model says the same again."""
    said = GEPA_TEXTS[name]
    try:
        answer = Said(text=said.text(prompt), finish_reason=said.finish_reason, usage=Usage())
        return read_reply(answer, prompt)
    except UnusableError as unusable:
        raise UnusableReplyError(str(unusable), Usage(calls=2, re_asks=1)) from None


async def one_batch(answer: Answer) -> Deployment:
    """Run one batch of three groups and a root to its version; nothing may be lost."""
    deployment = Deployment(model=ScriptedModel(answer), method="gepa", batch_size=COUNT)
    async with deployment.running():
        await deployment.log.produce(*map(outgoing, PUBLISHED))
        await deployment.until(lambda: bool(ledger.versions(deployment.log)))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    ledger.check(deployment.log, {NAME: PUBLISHED})
    return deployment


def text(deployment: Deployment) -> str:
    (entry,) = ledger.latest(deployment.log).entries
    return entry.content


hostile = pytest.mark.parametrize(
    "name",
    ["a text", "an apology", "fence not closed", "whole text but cut off", "prompt echoed between fences"],
)
"""One of each kind: what is adopted of any text is a pure decision, tested on all of them."""


@pytest.mark.parametrize("name", GEPA_TEXTS)
def test_a_hostile_text_is_refused_with_words_for_the_model_or_used(name: str) -> None:
    prompt = gepa.aggregate_prompt(INSTRUCTION, PUBLISHED)
    if GEPA_TEXTS[name].fate == "used":
        assert len(gepa.read(INSTRUCTION, read(name, prompt), [("r",)]).operations) == 1
    else:
        with pytest.raises(UnusableReplyError):
            read(name, prompt)


@hostile
async def test_a_hostile_reply_of_one_group_has_its_fate_and_leaves_the_others(name: str) -> None:
    asked: list[Prompt] = []

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        asked.append(prompt)
        return read(name, prompt) if prompt is asked[0] else writing(prompt)

    deployment = await one_batch(answer)
    partials = ledger.messages(deployment.log, topics.SCAN[1], Partial)
    wanted = LEAF[GEPA_TEXTS[name].fate]
    assert sorted(one.result.status for one in partials) == sorted(["ok", "ok", wanted])
    # Every reflection is in two groups: one of them read it.
    assert all(f"lesson {n}" in text(deployment) for n in range(COUNT))
    assert dead_letters(deployment.log) == []


@hostile
async def test_a_hostile_reply_of_the_root_never_becomes_the_text(name: str) -> None:
    fate = GEPA_TEXTS[name].fate
    deployment = await one_batch(lambda p: read(name, p) if is_combine(p) else writing(p))
    (update,) = ledger.messages(deployment.log, topics.UPDATES, Update)
    assert update.result.status == ROOT[fate]
    version = ledger.latest(deployment.log)
    assert batch_of(version).degraded is (fate == "unusable")
    if fate == "unusable":
        proposals = ledger.messages(deployment.log, topics.SCAN[1], Partial)
        best = max(len(one.result.operations[0].evidence) for one in proposals)
        assert text(deployment) in {one.result.operations[0].content for one in proposals}
        assert version.entries[0].evidence_count == best
        assert version.retention_recent[-1] == pytest.approx(best / COUNT, abs=1e-3)
    assert dead_letters(deployment.log) == []


@hostile
async def test_a_model_that_is_hostile_throughout_still_makes_a_version_and_loses_nothing_silently(
    name: str,
) -> None:
    deployment = await one_batch(lambda prompt: read(name, prompt))
    version = ledger.latest(deployment.log)
    lost = {letter.record_id for letter in dead_letters(deployment.log)}
    unusable = GEPA_TEXTS[name].fate == "unusable"
    assert lost == ({f"r-{n}" for n in range(COUNT)} if unusable else set())
    assert (version.version, batch_of(version).degraded, len(version.entries)) == (
        1,
        unusable,
        int(not unusable),
    )
    assert deployment.model.most_repeats == 1


async def test_the_versions_of_a_gepa_playbook_say_what_it_holds_and_keep_its_lines() -> None:
    deployment = await one_batch(lambda p: {"text": f"```\nFirst line.\n\n  second {len(p.user)}\n```"})
    version = ledger.latest(deployment.log)
    assert (version.method, version.holds, version.sections) == ("gepa", "components", ("instruction",))
    assert text(deployment).startswith("First line.\n\n  second ")
    (batch,) = ledger.batches(deployment.log)
    assert (batch.plan.settings.method, batch.plan.settings.holds) == ("gepa", "components")
