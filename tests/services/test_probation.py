"""Probation through all services, and what each reader of a playbook gets of it."""

from functools import partial
from typing import Any

import pytest

from combee.adapters.ports import Outgoing
from combee.core.methods import ace
from combee.core.playbook.shown import shown
from combee.core.playbook.versions import empty
from combee.sdk.view import PlaybookView
from combee_schemas.playbook import Entry, Playbook
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, batch_of, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")
BATCH = 10


def teaching(number: int, lesson: int) -> Outgoing:
    return outgoing(reflection(number, key_insight=f"lesson {lesson}"))


async def taught(lessons: list[list[int]], **settings: Any) -> Deployment:
    """Return a deployment after batches of reflections that each teach one of these lessons."""
    deployment = Deployment(batch_size=BATCH, **settings)
    async with deployment.running():
        for batch, numbers in enumerate(lessons):
            await deployment.log.produce(
                *(teaching(BATCH * batch + n, lesson) for n, lesson in enumerate(numbers))
            )
            await deployment.until(partial(has_versions, deployment, batch + 1))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    return deployment


def has_versions(deployment: Deployment, count: int) -> bool:
    return len(ledger.versions(deployment.log)) == count


def states(playbook: Playbook) -> dict[str, str]:
    return {entry.content: entry.state for entry in playbook.entries}


FIRST, SECOND = [1, 1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 3, 11, 12, 13, 14, 15, 16, 17, 18]


async def test_the_settings_stand_in_the_manifest_and_the_services_go_by_them() -> None:
    deployment = await taught([FIRST, SECOND], probation=2)
    first, second = ledger.versions(deployment.log)
    policy = batch_of(first).plan.settings.probation
    assert policy is not None
    assert (policy.reflections, policy.batches) == (2, 20)
    assert {content for content, state in states(first).items() if state == "active"} == {"lesson 1"}
    promoted = {change.entry_id for change in second.changes if change.kind == "promote"}
    assert {entry.content for entry in second.entries if entry.id in promoted} == {"lesson 2", "lesson 3"}
    assert len(second.entries) == 17


async def test_without_the_setting_nothing_is_ever_proposed() -> None:
    deployment = await taught([FIRST])
    assert batch_of(ledger.latest(deployment.log)).plan.settings.probation is None
    assert set(states(ledger.latest(deployment.log)).values()) == {"active"}


async def test_a_curator_sees_proposed_entries_apart_and_agents_do_not() -> None:
    deployment = await taught([FIRST, SECOND], probation=2)
    asked = [prompt.system for prompt in deployment.model.prompts]
    later = [text for text in asked if "<proposed " in text]
    assert later
    playbook, proposed = later[-1].split("<proposed ")
    assert "lesson 1" in playbook
    assert "lesson 4" in proposed
    assert "lesson 4" not in playbook
    before = ace.aggregate_prompt(shown(empty(NAME)), [reflection(1)])
    assert "proposed" not in before.system
    latest = ledger.latest(deployment.log)
    assert "lesson 4" not in ace.answer_prompt(latest, "?").system


def test_the_sdk_renders_what_agents_are_shown_and_the_rest_on_request() -> None:
    active = Entry(id="misc-00001", section="OTHERS", content="sure")
    proposed = Entry(id="misc-00002", section="OTHERS", content="perhaps", state="proposed")
    playbook = empty(NAME).model_copy(update={"version": 1, "entries": (active, proposed)})
    view = PlaybookView(name=NAME, snapshot=playbook)
    assert (view.entries, view.proposed) == ((active,), (proposed,))
    assert "perhaps" not in view.render() + view.prompt() + view.render("json") + view.choose(k=5).render()
    assert "perhaps" in view.render(include_proposed=True)
    told = view.shown()
    assert told is not None
    assert told.entry_ids == ("misc-00001",)
