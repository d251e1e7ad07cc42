"""A deleted playbook is gone for subscribers, its bookkeeping is not; its name may live again."""

import asyncio
from contextlib import suppress

import pytest

from combee.log.inspection.audit import audit
from combee.process.worker.views import Playbooks
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import Label, Playbook, deleted_key
from support import ledger
from support.deployment import Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import NAME, batch_of, dead_letters, latest, lessons, outgoing, reflection, versions

pytestmark = pytest.mark.usefixtures("quick_polls")


def command(command_id: str, kind: str, **fields: object) -> Command:
    return Command.model_validate({"command_id": command_id, "playbook": NAME, "kind": kind, **fields})


DELETE = command("gone", "delete")
PROMOTE = command("p", "promote", label="production", version=1)


async def learn(deployment: Deployment, *numbers: int) -> None:
    """Let all services learn ten reflections and come to rest."""
    before = ledger.applied(deployment.log)
    await deployment.log.produce(*(outgoing(reflection(n)) for n in numbers))
    await deployment.until(lambda: ledger.applied(deployment.log) == before + len(numbers))
    await rest(deployment)


async def rest(deployment: Deployment) -> None:
    await deployment.until(lambda: not ledger.behind(deployment.log))


async def send(deployment: Deployment, *commands: Command) -> None:
    await deployment.log.produce(*map(outgoing, commands))
    await deployment.until(lambda: not _behind(deployment))


def _behind(deployment: Deployment) -> bool:
    return any(at[0] == "publish" for at in ledger.behind(deployment.log))


def snapshots(deployment: Deployment) -> dict[str, bytes | None]:
    """Return what compaction leaves of ``playbooks``, by key."""
    return {(r.key or b"").decode(): r.value for r in ledger.records(deployment.log, topics.PLAYBOOKS)}


async def seen(deployment: Deployment) -> Playbook | None:
    """Return the playbook as a new subscriber sees it."""
    playbooks = Playbooks(deployment.log)
    reading = asyncio.create_task(playbooks.view.run())
    await playbooks.view.wait_current(5)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    return playbooks.view.get(NAME)


async def test_a_deleted_playbook_has_a_tombstone_and_its_history_ends_with_its_end() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, PROMOTE, DELETE)
    assert snapshots(deployment)[NAME] is None
    assert await seen(deployment) is None
    first, last = versions(deployment.log)
    assert (last.version, last.origin, last.entries, last.batch_sequence) == (2, "delete", (), 1)
    assert snapshots(deployment)[deleted_key(NAME)] == encode(latest(deployment.log))
    assert len(first.entries) == 10
    labels = {r.key: r.value for r in ledger.records(deployment.log, topics.LABELS)}
    assert labels == {f"{NAME}#production".encode(): None}
    assert (await audit(deployment.log)).good


async def test_after_a_restart_of_everything_a_new_reflection_starts_the_name_anew() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, DELETE)
    async with deployment.running():
        await learn(deployment, *range(10, 20))
    newest = latest(deployment.log)
    assert (
        newest.version,
        newest.batch_sequence,
        batch_of(newest).plan.base_version,
        batch_of(newest).plan.staleness,
    ) == (3, 2, 2, 0)
    assert {entry.content for entry in newest.entries} == lessons(range(10, 20))
    assert snapshots(deployment)[NAME] == encode(newest)
    assert snapshots(deployment)[deleted_key(NAME)] is None
    assert (await audit(deployment.log)).good
    assert dead_letters(deployment.log) == []


async def test_without_a_restart_too() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, DELETE)
        await learn(deployment, *range(10, 20))
        await send(deployment, command("again", "delete"))
        await learn(deployment, *range(20, 30))
    assert [one.origin for one in versions(deployment.log)] == ["batch", "delete", "batch", "delete", "batch"]
    assert {entry.content for entry in latest(deployment.log).entries} == lessons(range(20, 30))
    assert (await audit(deployment.log)).good


async def test_a_batch_on_its_way_ends_in_a_version_of_the_name_that_lives_again() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
    async with deployment.running(["shuffle", "publish"]):
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(10, 20)))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await send(deployment, DELETE)
    async with deployment.running():
        await deployment.until(lambda: ledger.applied(deployment.log) == 20)
        await rest(deployment)
        await learn(deployment, *range(20, 30))
    assert [one.origin for one in versions(deployment.log)] == ["batch", "delete", "batch", "batch"]
    assert {entry.content for entry in latest(deployment.log).entries} == lessons(range(10, 30))
    assert (await audit(deployment.log)).good
    assert dead_letters(deployment.log) == []


async def test_a_rollback_brings_a_deleted_playbook_back() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, DELETE, command("back", "rollback", version=1))
        assert (newest := await seen(deployment)) is not None
        assert (newest.version, newest.batch_sequence) == (3, 1)
        assert {entry.content for entry in newest.entries} == lessons(range(10))
        await learn(deployment, *range(10, 20))
    assert (await audit(deployment.log)).good


async def test_of_a_deleted_playbook_there_is_nothing_to_delete_revoke_or_label() -> None:
    deployment = Deployment()
    refused = (
        command("a", "delete"),
        command("b", "revoke", reflection_ids=("r-1",)),
        command("c", "promote", label="production", version=1),
    )
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, DELETE, *refused)
    assert [letter.value for letter in dead_letters(deployment.log)] == [encode(one) for one in refused]
    assert len(versions(deployment.log)) == 2
    assert await seen(deployment) is None


async def test_what_was_revoked_stays_out_of_the_name_that_lives_again() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, command("v", "revoke", reflection_ids=("r-3",)), DELETE)
        await send(deployment, command("back", "rollback", version=1))
    assert {entry.content for entry in latest(deployment.log).entries} == lessons(range(10)) - {"lesson 3"}


async def test_commands_sent_again_after_the_end_have_no_second_effect() -> None:
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
        await send(deployment, PROMOTE, DELETE, command("back", "rollback", version=1))
    async with deployment.running():
        await send(deployment, PROMOTE, DELETE)
    assert [one.origin for one in versions(deployment.log)] == ["batch", "delete", "rollback"]
    assert ledger.messages(deployment.log, topics.LABELS, Label)[-1].version == 1
    assert ledger.records(deployment.log, topics.LABELS)[-1].value is None
    assert dead_letters(deployment.log) == []


async def _killed_at(point: int) -> bool:
    """Kill a publisher at one of its writes while it labels and deletes; return whether there was that point."""
    deployment = Deployment()
    async with deployment.running():
        await learn(deployment, *range(10))
    await deployment.log.produce(*map(outgoing, (PROMOTE, DELETE)))
    failpoint = CrashFailpoint(point)
    with suppress(CrashError):
        async with deployment.running(["publish"], failpoint=failpoint):
            await deployment.until(lambda: snapshots(deployment)[NAME] is None and not _behind(deployment))
    left = snapshots(deployment)
    assert (left[NAME] is None) == (left.get(deleted_key(NAME)) is not None), "half deleted"
    async with deployment.running():
        await rest(deployment)
        await learn(deployment, *range(10, 20))
    assert [one.origin for one in versions(deployment.log)] == ["batch", "delete", "batch"]
    assert ledger.records(deployment.log, topics.LABELS)[-1].value is None
    assert (await audit(deployment.log)).good
    return failpoint.dead


async def test_a_publisher_killed_while_it_deletes_leaves_all_or_nothing() -> None:
    points = 0
    while await _killed_at(points + 1):
        points += 1
    assert points >= 6
