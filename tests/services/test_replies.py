"""What becomes of a hostile reply: a documented fate at each level, and no reflection lost."""

from collections.abc import Mapping
from typing import Any

import pytest

from combee.adapters.asking.replies import Answer as Said
from combee.adapters.asking.replies import UnusableError, read_reply
from combee.adapters.openai.model import UnusableReplyError
from combee.core.methods import ace
from combee.core.playbook.versions import empty
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.model import Prompt
from combee_schemas.scan import Partial, Update
from support import ledger
from support.deployment import Deployment, one_batch
from support.hostile import FATES, REPLIES, TEXTS, Fate
from support.ledger import NAME, batch_of, dead_letters, lessons, reflection
from support.models import Answer, echo, is_combine, is_control, items

COUNT = 9
ALL = lessons(range(COUNT))


def learned(deployment: Deployment) -> set[str]:
    return {entry.content for entry in ledger.latest(deployment.log).entries}


def first_leaf(deployment: Deployment) -> Partial:
    """Return the result of the group that was asked first."""
    numbers = {int(item["key_insight"].split()[-1]) for item in items(deployment.model.prompts[0])}
    partials = ledger.messages(deployment.log, topics.SCAN[1], Partial)
    return next(one for one in partials if {s.offset for s in one.result.seen} == numbers)


def root(deployment: Deployment) -> Update:
    (found,) = ledger.messages(deployment.log, topics.UPDATES, Update)
    return found


# ---- hostile replies


def leaf_says(body: Any) -> Answer:
    """Let the first group get ``body`` (called if it can be) for a reply."""
    asked: list[Prompt] = []

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        asked.append(prompt)
        return reply(body, prompt) if prompt is asked[0] or is_control(prompt) else echo(prompt)

    return answer


def root_says(body: Any) -> Answer:
    return lambda prompt: reply(body, prompt) if is_combine(prompt) else echo(prompt)


def reply(body: Any, prompt: Prompt) -> Mapping[str, Any]:
    found: Mapping[str, Any] = body(prompt) if callable(body) else body
    return found


def read(name: str) -> Answer:
    """Read a hostile text as the model client does; asked again, the model says the same again."""
    said = TEXTS[name]

    def answer(prompt: Prompt) -> Mapping[str, Any]:
        text = Said(text=said.text(prompt), finish_reason=said.finish_reason, usage=Usage())
        try:
            return read_reply(text, prompt)
        except UnusableError as unusable:
            raise UnusableReplyError(str(unusable), Usage(calls=2, re_asks=1)) from None

    return answer


CASES: Mapping[str, tuple[Any, Fate]] = {
    **{name: (body, FATES[name]) for name, body in REPLIES.items()},
    **{f"text: {name}": (read(name), TEXTS[name].fate) for name in ("truncated", "prompt echoed")},
}
hostile = pytest.mark.parametrize(("body", "fate"), CASES.values(), ids=CASES.keys())
LEAF = {"used": "ok", "vague": "ok", "empty": "empty", "unusable": "failed"}
ROOT = {"used": "ok", "vague": "ok", "empty": "ok", "unusable": "merged"}


def test_every_hostile_reply_has_a_fate() -> None:
    assert FATES.keys() == REPLIES.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_is_no_reply_or_one_with_a_fate(name: str) -> None:
    prompt = ace.aggregate_prompt(empty(NAME), [reflection(n) for n in range(3)])
    try:
        found = ace.read(empty(NAME), read(name)(prompt), [(f"r-{n}",) for n in range(3)])
    except UnusableReplyError:
        fate = "unusable"
    else:
        fate = "used" if found.operations else "empty"
    assert fate == TEXTS[name].fate


@hostile
@pytest.mark.usefixtures("quick_polls")
async def test_a_hostile_reply_of_one_group_has_its_fate_and_costs_no_lesson(body: Any, fate: Fate) -> None:
    deployment = await one_batch(leaf_says(body))
    leaf = first_leaf(deployment)
    assert leaf.result.status == LEAF[fate]
    assert all(seen.ok is (fate != "unusable") for seen in leaf.result.seen)
    named = {reflection_id for operation in leaf.result.operations for reflection_id in operation.evidence}
    assert bool(named) is (fate in {"used", "vague"})
    assert len(named) == len(leaf.result.seen) or fate != "vague"
    assert learned(deployment) >= ALL
    assert dead_letters(deployment.log) == []


@hostile
@pytest.mark.usefixtures("quick_polls")
async def test_a_hostile_reply_of_the_root_has_its_fate_and_costs_no_lesson(body: Any, fate: Fate) -> None:
    deployment = await one_batch(root_says(body))
    assert root(deployment).result.status == ROOT[fate]
    assert learned(deployment) >= ALL
    assert dead_letters(deployment.log) == []


@hostile
@pytest.mark.usefixtures("quick_polls")
async def test_a_model_that_is_hostile_throughout_costs_the_lessons_of_unusable_replies_only(
    body: Any, fate: Fate
) -> None:
    deployment = await one_batch(lambda prompt: reply(body, prompt))
    version = ledger.latest(deployment.log)
    assert version.version == 1
    lost = {letter.record_id for letter in dead_letters(deployment.log)}
    assert lost == ({f"r-{n}" for n in range(COUNT)} if fate == "unusable" else set())
    assert fate == "unusable" or learned(deployment) >= ALL
    assert batch_of(version).degraded is (fate == "unusable")
    assert deployment.model.most_repeats == 1
