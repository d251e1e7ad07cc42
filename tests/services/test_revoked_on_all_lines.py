"""What is poison on one line of a playbook is on all: revoked together; and a playbook with branches stays."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from combee.core.commands import RefusedError
from combee.core.playbook import versions
from combee.log.evidence import with_revoked
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.command import Command
from combee_schemas.playbook import Label, Playbook
from support import ledger
from support.branches import (
    BATCH,
    DELETE,
    FORK,
    LINE,
    SAME,
    ahead,
    carried_out,
    commands,
    contents,
    forked,
    ids,
    learned,
    publish,
    refused,
)
from support.deployment import Deployment, updates_left
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import NAME, outgoing

pytestmark = pytest.mark.usefixtures("quick_polls")
REVOKE = Command(command_id="revoke", playbook=NAME, kind="revoke", reflection_ids=("r-0", "r-10"))
SHOP, OTHER = Source(name="shop"), Source(name="other")


def all_contents(deployment: Deployment) -> list[set[str]]:
    return [contents(deployment, line) for line in (NAME, LINE)]


def revoked(deployment: Deployment, line: str = NAME) -> bool:
    return bool(ledger.latest(deployment.log, line).revocations)


@pytest.mark.parametrize("named", [NAME, LINE])
async def test_a_revocation_takes_its_lessons_from_the_playbook_and_from_its_branches(named: str) -> None:
    deployment = await ahead()
    async with deployment.running():
        decision = await commands(deployment).revoke(named, ["r-0", "r-10"])
        await carried_out(deployment, decision)
        assert all_contents(deployment) == [ledger.lessons([1, 2]), ledger.lessons([1, 2, 11])]
        assert (await commands(deployment).revoke(named, ["r-0", "r-10"])).command is None
        await publish(deployment, [12])
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    assert contents(deployment) == ledger.lessons([1, 2, 11, 12]), "nor does it come later"
    whole = [await with_revoked(deployment.log, version) for version in ends(deployment)]
    assert [version.revoked for version in whole] == [("r-0", "r-10")] * 2
    assert (await audit(deployment.log)).good


async def test_a_dry_run_says_it_for_each_line() -> None:
    deployment = await ahead()
    async with deployment.running():
        label = Command(command_id="l", playbook=LINE, kind="promote", label="tried", version=2)
        await deployment.log.produce(outgoing(label))
        await deployment.until(lambda: bool(ledger.messages(deployment.log, topics.LABELS, Label)))
    outlook = (await commands(deployment).revoke(NAME, ["r-0", "r-10"])).outlook
    assert outlook is not None
    (branch,) = outlook.branches
    assert [len(each.changed("remove")) for each in (outlook, branch)] == [1, 2]
    assert (outlook.labels, branch.labels) == ({}, {"tried": 2})
    assert outlook.copies == (), "a branch is no other playbook"
    document = outlook.as_document()
    assert [each["name"] for each in document["branches"]] == [LINE]


async def test_killed_at_any_write_it_is_revoked_on_all_lines_or_on_none() -> None:
    failpoint, deployment = CrashFailpoint(), await ahead()
    await deployment.log.produce(outgoing(REVOKE), outgoing(REVOKE))
    async with deployment.running(["publish"], failpoint=failpoint):
        await deployment.until(lambda: done(deployment))
    for at in range(1, len(failpoint.points) + 1):
        deployment = await ahead()
        await deployment.log.produce(outgoing(REVOKE), outgoing(REVOKE))
        with suppress(CrashError):
            async with deployment.running(["publish"], failpoint=CrashFailpoint(at)):
                await deployment.until(lambda: done(deployment))  # noqa: B023
        assert revoked(deployment) == revoked(deployment, LINE), at
        async with deployment.running(["publish"]):
            await deployment.until(lambda: done(deployment))  # noqa: B023
        assert all_contents(deployment) == [ledger.lessons([1, 2]), ledger.lessons([1, 2, 11])], at
        assert [len(ledger.versions(deployment.log, line)) for line in (NAME, LINE)] == [2, 3], at


def done(deployment: Deployment) -> bool:
    return not [at for at in ledger.behind(deployment.log) if at[0] == "publish"]


@pytest.mark.parametrize(("chosen", "left"), [((0,), [1, 2]), ((0, 1), [2]), ((0, 1, 2), [])])
@pytest.mark.parametrize("fields", [{}, {"key_insight": SAME}], ids=["each its own", "the same"])
async def test_a_branch_does_not_begin_with_what_was_revoked_while_its_fork_was_on_its_way(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], chosen: Sequence[int], left: list[int]
) -> None:
    monkeypatch.setattr(versions, "EVIDENCE_KEPT", 1)
    deployment = await learned(**fields)
    revoke = REVOKE.model_copy(update={"reflection_ids": tuple(ids(chosen))})
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: bool(ledger.batches(deployment.log, LINE)))
    with updates_left():
        async with deployment.running(["publish"]):
            await deployment.log.produce(outgoing(revoke))
            await deployment.until(lambda: revoked(deployment))
    async with deployment.running(["publish"]):
        await deployment.until(lambda: bool(ledger.versions(deployment.log, LINE)))
    # Who says it word for word needs no model to say it again.
    assert all_contents(deployment) == [{SAME} if fields and left else ledger.lessons(left)] * 2
    assert not any(version.again for version in ends(deployment))
    assert [sum(each.evidence_count for each in version.entries) for version in ends(deployment)] == [
        len(left)
    ] * 2
    assert revoked(deployment, LINE)
    assert (await audit(deployment.log)).good


def ends(deployment: Deployment) -> list[Playbook]:
    return [ledger.latest(deployment.log, line) for line in (NAME, LINE)]


async def test_a_source_that_was_revoked_before_the_fork_does_not_count_on_the_branch() -> None:
    deployment = await learned()
    async with deployment.running():
        await publish(deployment, range(3, 6), source=SHOP)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await carried_out(deployment, await commands(deployment).revoke(NAME, ["source:shop"]))
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: bool(ledger.versions(deployment.log, LINE)))
        await publish(deployment, [10], source=SHOP)
        await publish(deployment, [11, 12], source=OTHER)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
    assert all_contents(deployment) == [ledger.lessons([0, 1, 2, 11, 12]), ledger.lessons([0, 1, 2, 11])]


async def test_a_deleted_branch_does_not_come_back_with_what_was_revoked_meanwhile() -> None:
    deployment = await ahead()
    async with deployment.running():
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: ledger.versions(deployment.log, LINE)[-1].origin == "delete")
        await carried_out(deployment, await commands(deployment).revoke(NAME, ["r-0"]))
        await carried_out(deployment, await commands(deployment).rollback(LINE, 2))
    assert contents(deployment, LINE) == ledger.lessons([1, 2, 10, 11])


async def test_an_older_version_is_adopted_without_what_was_revoked_since() -> None:
    deployment = await ahead()
    async with deployment.running():
        await carried_out(deployment, await commands(deployment).revoke(NAME, ["r-0", "r-10"]))
        await carried_out(deployment, await commands(deployment).adopt(NAME, LINE, 2))
        assert contents(deployment) == ledger.lessons([1, 2, 11])
        await carried_out(deployment, await commands(deployment).revoke(NAME, ["r-1", "r-11"]))
    assert contents(deployment) == ledger.lessons([2]), "also what came from the branch"


async def test_a_playbook_that_has_branches_is_not_deleted() -> None:
    deployment = await forked()
    complaint = f"{NAME} has branches, which learn from its reflections: delete them first ({LINE})"
    with pytest.raises(RefusedError) as refusal:
        await commands(deployment).delete(NAME)
    assert str(refusal.value) == complaint
    delete = Command(command_id="d", playbook=NAME, kind="delete")
    async with deployment.running():
        await deployment.log.produce(outgoing(delete))
        await deployment.until(lambda: bool(refused(deployment)))
        assert refused(deployment) == [complaint]
        await publish(deployment, range(10, 10 + BATCH))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        # The update of a batch that is in flight would create the branch again (ADR 0013).
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1 + BATCH // 2)
        await carried_out(deployment, await commands(deployment).delete(LINE))
        await carried_out(deployment, await commands(deployment).delete(NAME))
    assert ledger.versions(deployment.log)[-1].origin == "delete"
