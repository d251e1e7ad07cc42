"""What is undone while a batch is under way does not come back with it, and the batch loses no lesson."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from combee.log.inspection.audit import audit
from combee_schemas.base import Source
from combee_schemas.command import Command, CommandKind
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry
from combee_schemas.records import Outgoing
from combee_schemas.scan import OperationKind
from support import ledger
from support.deployment import Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel

pytestmark = pytest.mark.usefixtures("quick_polls")
SIZE = 9
FIRST = Entry(id="text-00001", section="instruction", content="Be brief")
HOSTILE = "lesson 3"


def writing(prompt: Prompt) -> Mapping[str, Any]:
    """Keep what the current text says, and add what the records say."""
    said = re.findall(r"lesson \d+|Be \w+", prompt.system + prompt.user)
    return {"text": f"```\n{'; '.join(dict.fromkeys(said))}\n```"}


def command(kind: CommandKind, **fields: Any) -> Outgoing:
    return outgoing(Command(command_id=kind, playbook=NAME, kind=kind, **fields))


def records(first: int, hostile: int = -1) -> list[Outgoing]:
    """Return a batch of records, one of which is mallory's."""
    return [
        outgoing(reflection(n, source=Source(name="mallory" if n == hostile else "shop")))
        for n in range(first, first + SIZE)
    ]


async def taught() -> Deployment:
    """Return a playbook with a text that a person imported, and that a batch has rewritten."""
    deployment = Deployment(model=ScriptedModel(writing), method="gepa", batch_size=SIZE)
    async with deployment.running():
        await deployment.log.produce(command("import", holds="components", counters=False, entries=(FIRST,)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        await deployment.log.produce(*records(0, hostile=3))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert HOSTILE in text(deployment)
    assert len(ledger.versions(deployment.log)) == 2
    return deployment


async def under_way_when(deployment: Deployment, undoing: Outgoing) -> None:
    """Let a batch read the text, and a person undo something of it before its scan is over."""
    async with deployment.running(["shuffle", "publish"]):
        await deployment.log.produce(*records(10))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await deployment.log.produce(undoing)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)


def text(deployment: Deployment) -> str:
    (entry,) = ledger.latest(deployment.log).entries
    return entry.content


REVOKED = command("revoke", reflection_ids=("r-3",), rules=("source:mallory",))
REWORDING = {"kind": OperationKind.UPDATE, "section": FIRST.section, "entry_ids": (FIRST.id,)}
EDIT = command("edit", operations=({**REWORDING, "content": "Be polite"},))


@pytest.mark.parametrize(
    "undoing",
    [REVOKED, command("rollback", version=1), EDIT],
    ids=["revoke", "rollback", "edit"],
)
async def test_a_batch_that_read_a_text_before_it_was_undone_does_not_bring_it_back(
    undoing: Outgoing,
) -> None:
    deployment = await taught()
    await under_way_when(deployment, undoing)
    async with deployment.running():
        await deployment.until(lambda: "lesson 12" in text(deployment))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert all(f"lesson {n}" in text(deployment) for n in range(10, 10 + SIZE))
    assert HOSTILE not in text(deployment)
    assert (await audit(deployment.log)).good


async def test_a_text_that_a_person_wrote_stays_though_all_that_taught_it_earlier_is_revoked() -> None:
    deployment = await taught()
    everything = command("revoke", reflection_ids=[f"r-{n}" for n in range(SIZE)])
    async with deployment.running():
        await deployment.log.produce(EDIT, everything)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert text(deployment) == "Be polite"


async def test_what_a_revoked_source_says_later_is_in_no_text() -> None:
    deployment = await taught()
    async with deployment.running():
        await deployment.log.produce(REVOKED)
        await deployment.until(lambda: "lesson 8" in text(deployment) and HOSTILE not in text(deployment))
        await deployment.log.produce(*records(20, hostile=24))
        await deployment.until(lambda: "lesson 28" in text(deployment))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert "lesson 24" not in text(deployment)
    assert (await audit(deployment.log)).good


@pytest.mark.parametrize("gone", [{3}, {*range(SIZE)}], ids=["among others", "alone in its batch"])
async def test_what_a_later_batch_repeated_of_a_revoked_text_goes_and_its_lessons_come_again(
    gone: set[int],
) -> None:
    deployment = await taught()
    revoked = command("revoke", reflection_ids=[f"r-{n}" for n in sorted(gone)], rules=("source:mallory",))
    async with deployment.running():
        await deployment.log.produce(*records(10))
        await deployment.until(lambda: "lesson 12" in text(deployment))
        await deployment.until(lambda: not ledger.behind(deployment.log))
        assert HOSTILE in text(deployment)
        await deployment.log.produce(revoked)
        await deployment.until(lambda: HOSTILE not in text(deployment))
        await deployment.until(lambda: "lesson 12" in text(deployment))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    left = {*range(SIZE), *range(10, 10 + SIZE)} - gone
    assert {*text(deployment).split("; ")} == {FIRST.content, *(f"lesson {n}" for n in left)}
    assert (await audit(deployment.log)).good


@pytest.mark.parametrize("revoked", [2, 12], ids=["of another batch", "of the same batch"])
async def test_what_is_to_be_asked_again_is_asked_after_a_revocation_too(revoked: int) -> None:
    deployment = await taught()
    await under_way_when(deployment, EDIT)
    async with deployment.running(["scan", "publish"]):
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
        await deployment.log.produce(command("revoke", reflection_ids=(f"r-{revoked}",)))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 5)
    async with deployment.running():
        await deployment.until(lambda: "lesson 18" in text(deployment))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    asked = {f"lesson {n}" for n in range(10, 10 + SIZE) if n != revoked}
    assert asked <= {*text(deployment).split("; ")}
    assert f"lesson {revoked}" not in text(deployment).split("; ")
    assert (await audit(deployment.log)).good


async def test_who_repeats_a_lesson_while_its_only_source_is_revoked_is_heard() -> None:
    deployment = Deployment(batch_size=2)
    async with deployment.running():
        said = (reflection(n, key_insight="lesson 1", source=Source(name="mallory")) for n in (0, 1))
        await deployment.log.produce(*map(outgoing, said))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    async with deployment.running(["shuffle", "publish"]):
        said = (reflection(n, key_insight="lesson 1", source=Source(name="shop")) for n in (2, 3))
        await deployment.log.produce(*map(outgoing, said))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        revoked = command("revoke", reflection_ids=("r-0", "r-1"), rules=("source:mallory",))
        await deployment.log.produce(revoked)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    assert ledger.latest(deployment.log).entries == ()
    async with deployment.running():
        await deployment.until(lambda: bool(ledger.latest(deployment.log).entries))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    (entry,) = ledger.latest(deployment.log).entries
    assert (entry.content, set(entry.evidence)) == ("lesson 1", {"r-2", "r-3"})
    assert (await audit(deployment.log)).good
