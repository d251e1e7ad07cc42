"""A branch: forked between two batches of its playbook, from then on it learns from the same reflections."""

from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import Outgoing
from combee.core.batching.limits import ShuffleLimits
from combee.core.batching.window import Waiting
from combee.core.log.archive.cut import Cut
from combee.core.names.sources import KnownSources, Signer, with_secret
from combee.core.playbook.shown import shown_to
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.log.commands import dead_letters
from combee.log.inspection.audit import audit
from combee.process.worker.provenance import Provenance
from combee.shuffle import partition
from combee.shuffle.partition import ShuffleState
from combee_schemas import topics
from combee_schemas.base import Source, Usage
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, OperationKind
from support import ledger
from support.archives import archived, restored
from support.branches import (
    BATCH,
    DELETE,
    FORK,
    LINE,
    OWN,
    ahead,
    both,
    contents,
    first,
    fork_of,
    forked,
    forking,
    ids,
    learned,
    members,
    publish,
    unusable_on_the_branch,
    waiting,
)
from support.deployment import ROLES, Deployment
from support.killed import killed_at_each_write
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo

pytestmark = pytest.mark.usefixtures("quick_polls")


async def test_a_branch_begins_with_the_content_and_learns_from_the_same_reflections() -> None:
    async with forking() as deployment:
        before = ledger.latest(deployment.log)
        assert [entry.content for entry in first(deployment).entries] == [e.content for e in before.entries]
        await publish(deployment, range(10, 16))
        await deployment.until(lambda: both(deployment, 6))
    assert members(deployment, NAME) == ids([*range(3), *range(10, 16)])
    assert members(deployment, LINE) == ids(range(10, 16))
    contents = [
        {entry.content for entry in ledger.latest(deployment.log, line).entries} for line in (NAME, LINE)
    ]
    assert contents[0] == contents[1] == ledger.lessons([*range(3), *range(10, 16)])


async def test_each_line_goes_by_its_own_settings() -> None:
    async with forking() as deployment:
        await publish(deployment, range(10, 16))
        await deployment.until(lambda: both(deployment, 6))
    sizes = [[len(batch.members) for batch in ledger.batches(deployment.log, line)] for line in (NAME, LINE)]
    assert sizes == [[3, 3, 3], [0, 2, 2, 2]]
    own, other = (ledger.batches(deployment.log, line)[-1].plan.settings for line in (LINE, NAME))
    assert (own.copies, own.prompts) == (1, "small")
    overlaid = {name: getattr(other, name) for name in ("copies", "prompts", "templates")}
    assert own.templates != other.templates
    assert own.model_copy(update=overlaid) == other


async def test_a_reflection_is_paid_for_on_the_playbook_alone() -> None:
    async with forking() as deployment:
        await publish(deployment, range(10, 16), usage=Usage(calls=1, tokens_in=5))
        await deployment.until(lambda: both(deployment, 6))
    batches = [ledger.batches(deployment.log, line) for line in (NAME, LINE)]
    assert [sum(batch.plan.reflect_usage.tokens_in for batch in cut) for cut in batches] == [30, 0]


async def test_a_fork_waits_for_the_batch_in_flight_and_takes_what_waits_along() -> None:
    deployment = await learned()
    async with deployment.running(["shuffle", "publish"]):
        await publish(deployment, range(10, 14))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await deployment.log.produce(outgoing(FORK))
        await publish(deployment, range(14, 17))
        await deployment.until(lambda: waiting(deployment) == 4)
        assert not ledger.batches(deployment.log, LINE)
        async with deployment.running(["scan"]):
            await deployment.until(lambda: both(deployment, 3))
    fork = fork_of(deployment).plan
    assert fork.branch is not None
    assert (fork.branch.version, fork.branch.sequence) == (2, 2)
    assert members(deployment, NAME) == ids([*range(3), *range(10, 16)])
    assert members(deployment, LINE) == ids(range(13, 17)), "what was in no batch yet is learned on both"


async def test_sent_again_a_fork_has_one_effect() -> None:
    deployment = await learned()
    async with deployment.running():
        await deployment.log.produce(outgoing(FORK), outgoing(FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
        await deployment.log.produce(
            outgoing(FORK), outgoing(FORK.model_copy(update={"command_id": "other"}))
        )
        await publish(deployment, range(10, 16))
        await deployment.until(lambda: both(deployment, 6))
    assert fork_of(deployment).plan.sequence == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"branch": ""},
        {"branch": "a b"},
        {"playbook": LINE},
        {"settings": OWN.model_copy(update={"copies": 9})},
    ],
    ids=str,
)
async def test_a_branch_that_cannot_be_is_dead_lettered_and_work_goes_on(wrong: dict[str, Any]) -> None:
    deployment = await learned()
    bad = FORK.model_copy(update=wrong)
    async with deployment.running():
        await deployment.log.produce(
            Outgoing(topic=topics.COMMANDS.name, key=NAME.encode(), value=encode(bad))
        )
        await deployment.until(lambda: bool(ledger.dead_letters(deployment.log)))
        await publish(deployment, range(10, 13))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    assert {letter.origin_topic for letter in ledger.dead_letters(deployment.log)} == {topics.COMMANDS.name}


async def test_repeats_are_known_across_the_fork_and_after_it() -> None:
    async with forking() as deployment:
        await publish(deployment, [0, 1, 10, 10, 11])
        await deployment.until(lambda: len(members(deployment, LINE)) == 2)
    async with deployment.running():
        await publish(deployment, [2, 10, 11, 12, 13])
        await deployment.until(lambda: len(members(deployment, LINE)) == 4)
        await deployment.until(lambda: len(members(deployment, NAME)) == 6)
    assert members(deployment, LINE) == ids(range(10, 14))
    assert members(deployment, NAME) == ids([*range(3), *range(10, 13)])


async def test_a_deleted_branch_learns_no_more_and_holds_nothing_up() -> None:
    async with forking() as deployment:
        await publish(deployment, [10])
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: ledger.versions(deployment.log, LINE)[-1].origin == "delete")
        await publish(deployment, range(11, 16))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    assert ledger.versions(deployment.log, LINE)[-1].branch is None
    assert (await audit(deployment.log)).good


async def test_a_branch_is_forked_anew_under_its_old_name() -> None:
    async with forking() as deployment:
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        await publish(deployment, range(10, 13))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
        await deployment.log.produce(outgoing(FORK.model_copy(update={"command_id": "again"})))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 3)
        await publish(deployment, range(20, 23))
        await deployment.until(lambda: len(members(deployment, LINE)) >= 2)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 4)
    assert members(deployment, LINE) == ids([20, 21])
    assert ledger.lessons(range(10, 13)) <= {e.content for e in ledger.latest(deployment.log, LINE).entries}
    assert (await audit(deployment.log)).good


async def test_a_branch_that_is_forked_anew_reads_what_the_deleted_one_had_read_after_a_restart_too() -> None:
    deployment = await ahead()
    larger = OWN.model_copy(update={"batch_size": 4})
    async with deployment.running():
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: ledger.latest(deployment.log, LINE).origin == "delete")
        again = FORK.model_copy(update={"command_id": "again", "settings": larger})
        await deployment.log.produce(outgoing(again))
        await deployment.until(lambda: ledger.latest(deployment.log, LINE).branch is not None)
    async with deployment.running():
        await publish(deployment, range(20, 24))
        await deployment.until(
            lambda: contents(deployment, LINE) == ledger.lessons([0, 1, 2, 10, 11, 20, 21])
        )


async def test_a_deleted_branch_had_read_beyond_what_waited_for_its_source_s_share() -> None:
    secret = b"a secret of both, 32 characters."
    check = with_secret(secret)
    deployment = await forked()
    deployment.provenance = Provenance(
        KnownSources(checks={"loud": ("secret", check), "quiet": ("secret", check)})
    )
    sources = {10: Source(name="loud"), 11: Source(name="loud"), 12: Source(name="quiet")}
    sent = [
        Signer(name=source.name, secret=secret).signed(outgoing(reflection(n, source=source)), source)
        for n, source in sources.items()
    ]
    async with deployment.running():
        await deployment.log.produce(*sent)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 3)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    assert members(deployment, LINE) == ["r-10~by~loud", "r-12~by~quiet"]
    assert (await audit(deployment.log)).good


async def test_a_branch_that_comes_back_has_not_read_what_came_before_its_consolidation() -> None:
    deployment = await ahead()
    async with deployment.running():
        for number, order in enumerate(
            (DELETE, Command(command_id="back", playbook=LINE, kind="rollback", version=2)), 3
        ):
            await deployment.log.produce(outgoing(order))
            await deployment.until(lambda number=number: len(ledger.versions(deployment.log, LINE)) == number)  # type: ignore[misc]
            await publish(deployment, range(10 * number, 10 * number + BATCH))
            await deployment.until(lambda number=number: len(ledger.versions(deployment.log)) == number - 1)  # type: ignore[misc]
        order = Command(command_id="unite", playbook=LINE, kind="consolidate")
        await deployment.log.produce(outgoing(order))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 5)
    assert members(deployment, LINE) == ids([10, 11])
    assert (await audit(deployment.log)).good


async def begun() -> Deployment:
    """Return a deployment in which a branch is asked for while a reflection waits."""
    deployment = await learned(BATCH + 1)
    await deployment.log.produce(outgoing(FORK))
    await publish(deployment, range(10, 15))
    return deployment


def over(deployment: Deployment) -> bool:
    return both(deployment, 6) and len(ledger.versions(deployment.log)) == 3


@pytest.mark.parametrize("role", ["shuffle", "scan", "publish"])
async def test_killed_at_any_write_both_lines_have_each_reflection_once(role: str) -> None:
    async for at, deployment in killed_at_each_write(role, begun, over):
        forked = fork_of(deployment).plan.branch
        assert forked is not None
        inherited = members(deployment, NAME)[: forked.sequence * BATCH]
        assert members(deployment, NAME) == ids([*range(4), *range(10, 15)]), at
        assert [*inherited, *members(deployment, LINE)] == ids([*range(4), *range(10, 15)]), at
        assert (await audit(deployment.log)).good, at


async def test_tags_of_agents_that_read_the_playbook_count_on_a_branch_that_says_the_same() -> None:
    async with forking() as deployment:
        same, other, *_ = first(deployment).entries
        changed = Operation(kind=OperationKind.UPDATE, content="otherwise", entry_ids=(other.id,))
        edit = Command(command_id="e", playbook=LINE, kind="edit", operations=(changed,))
        await deployment.log.produce(outgoing(edit))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        read = ledger.latest(deployment.log)
        tags = tuple(BulletTag(id=each.id, tag="helpful") for each in (same, other))
        await publish(deployment, range(10, 16), bullet_tags=tags, shown=shown_to(read, read.entries))
        await deployment.until(lambda: len(members(deployment, LINE)) == 6)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 5)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    counted = [
        {entry.id: entry.helpful for entry in ledger.latest(deployment.log, line).entries}
        for line in (NAME, LINE)
    ]
    assert [(each[same.id], each[other.id]) for each in counted] == [(6, 6), (6, 0)]


# ---- what one line alone lacks


async def test_the_ledger_counts_each_reflection_once_on_each_line() -> None:
    async with forking() as deployment:
        await publish(deployment, [*range(10, 16), 0, 10])
        await deployment.until(lambda: both(deployment, 6))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    found = await audit(deployment.log)
    assert (found.reflections, found.applied, found.duplicates, found.good) == (15, 15, 2, True)


async def test_the_ledger_misses_what_one_line_has_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = ShuffleState.wait

    def forgetful(state: ShuffleState, line: str, given: Waiting, **more: Any) -> None:
        if (line, given.member.reflection_id) != (LINE, "r-11"):
            wait(state, line, given, **more)

    monkeypatch.setattr(ShuffleState, "wait", forgetful)
    async with forking() as deployment:
        await publish(deployment, range(10, 13))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    found = await audit(deployment.log)
    assert (found.lost, found.good) == (1, False)
    assert f"r-11 of {LINE}" in found.violations[0]


async def test_a_retry_counts_on_the_line_that_it_failed_on() -> None:
    deployment = await learned()
    deployment.model = ScriptedModel(unusable_on_the_branch)
    async with deployment.running():
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
        await publish(deployment, range(10, 13))
        await deployment.until(lambda: len(ledger.dead_letters(deployment.log)) == 2)
    assert {letter.playbook for letter in ledger.dead_letters(deployment.log)} == {LINE}
    found = await ledger.stored_letters(deployment.log)
    deployment.model = ScriptedModel(echo)
    async with deployment.running():
        resolved, refused = await dead_letters.resend(deployment.log, deployment.clock, found, {})
        assert (len(resolved), refused) == (2, [])
        await deployment.until(lambda: len(members(deployment, LINE)) == 4)
        await publish(deployment, [13])
        await deployment.until(lambda: len(members(deployment, LINE)) == 6)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 4)
    assert members(deployment, NAME) == ids([*range(3), *range(10, 13)]), "a retry is a repeat there"
    assert members(deployment, LINE) == ids([10, 11, 12, 10, 11, 13])
    assert ledger.lessons(range(10, 14)) <= {e.content for e in ledger.latest(deployment.log, LINE).entries}
    assert (await audit(deployment.log)).good


async def test_what_has_no_room_in_memory_is_read_again_on_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "WINDOW_KEPT", 2)
    deployment = await learned()
    deployment.limits_of_shuffle = ShuffleLimits(window_memory_bytes=1)
    async with deployment.running(["shuffle", "publish"]):
        await publish(deployment, range(10, 13))
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await deployment.log.produce(outgoing(FORK))
        await publish(deployment, range(20, 32))
        await deployment.until(lambda: waiting(deployment) == 12)
        async with deployment.running(["scan"]):
            await deployment.until(lambda: len(members(deployment, LINE)) == 12)
            await deployment.until(lambda: both(deployment, 12))
    assert members(deployment, LINE) == ids(range(20, 32))
    assert members(deployment, NAME) == ids([*range(3), *range(10, 13), *range(20, 32)])
    assert (await audit(deployment.log)).good


def learning(deployment: Deployment) -> int:
    """Return how many versions there are of batches with reflections, on both lines."""
    both_lines = [*ledger.versions(deployment.log), *ledger.versions(deployment.log, LINE)]
    return sum(version.reflections > 0 for version in both_lines)


async def test_both_lines_have_one_spend_cap() -> None:
    deployment = Deployment(batch_size=BATCH, spending=SpendPolicy(daily_tokens=1))
    async with deployment.running():
        await publish(deployment, range(BATCH))
        await deployment.until(lambda: learning(deployment) == 1)
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
        await publish(deployment, range(10, 16))
        await deployment.until(lambda: waiting(deployment) == 6)
        assert deployment.shuffler is not None
        for day in range(2, 5):
            for _ in range(3):
                await deployment.shuffler.turn()
            assert learning(deployment) == day - 1, "the first batch of a day goes, on one line"
            deployment.advance(86_400)
            await deployment.until(lambda: learning(deployment) == day)  # noqa: B023
    deployment.spending = UNCAPPED
    async with deployment.running():
        await deployment.until(lambda: both(deployment, 6))
    assert (await audit(deployment.log)).good


# ---- archived


@pytest.mark.parametrize("begun_only", [True, False])
@pytest.mark.parametrize("partitions", [1, 2, 5])
async def test_an_archive_takes_both_lines_to_other_partitions(
    tmp_path: Path, partitions: int, *, begun_only: bool
) -> None:
    deployment = await begun()
    roles = ("shuffle", "publish") if begun_only else ROLES
    async with deployment.running(roles):
        await deployment.until(
            lambda: len(ledger.batches(deployment.log)) == 2 if begun_only else over(deployment)
        )
    await archived(deployment.log, tmp_path / "archive")
    moved = Deployment(batch_size=BATCH, partitions=partitions)
    await restored(tmp_path / "archive", moved.log)
    async with moved.running():
        await moved.until(lambda: over(moved))
        await publish(moved, range(20, 26))
        await moved.until(lambda: both(moved, 12))
    assert members(moved, NAME) == ids([*range(4), *range(10, 15), *range(20, 26)])
    assert members(moved, LINE)[-6:] == ids(range(20, 26))
    assert (await audit(moved.log)).good


async def test_a_fork_of_a_version_beyond_the_cut_is_left_out() -> None:
    deployment = await forked()
    (record,) = [r for r in ledger.records(deployment.log, topics.BATCHES) if r.key == LINE.encode()]
    ends = {topic.name: tuple((await deployment.log.ends(topic.name)).values()) for topic in topics.TOPICS}
    assert not Cut(ends=ends).holds(topics.BATCHES, record)
    cut = Cut(ends=ends)
    for version in ledger.records(deployment.log, topics.HISTORY):
        cut.holds(topics.HISTORY, version)
    assert cut.holds(topics.BATCHES, record)
