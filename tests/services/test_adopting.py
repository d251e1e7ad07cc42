"""A branch is adopted: its content becomes the playbook's next version, and where it came from stays known."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.ports import FatalError, PoisonError
from combee.cli.replay.recorded import Range, recording
from combee.cli.replay.replaying import Replay
from combee.core.commands import RefusedError
from combee.core.playbook import versions
from combee.core.playbook.shown import shown_to
from combee.log.commands import dead_letters
from combee.log.inspection.audit import audit
from combee.log.inspection.lineage import Lineage, lineage
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.playbook import Adopted, Entry
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, OperationKind
from support import ledger
from support.archives import archived, restored
from support.branches import (
    BATCH,
    DELETE,
    FORK,
    LINE,
    SAME,
    ahead,
    both,
    carried_out,
    commands,
    contents,
    first,
    forked,
    ids,
    learned,
    members,
    publish,
    refused,
    unusable_on_the_branch,
)
from support.deployment import ROLES, Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.ledger import NAME, outgoing
from support.models import ScriptedModel, echo, is_control

pytestmark = pytest.mark.usefixtures("quick_polls")
ADOPT = Command(command_id="adopt", playbook=NAME, kind="adopt", branch="short", version=1)


async def adopt(deployment: Deployment, version: int | None = None) -> None:
    await carried_out(deployment, await commands(deployment).adopt(NAME, LINE, version))


async def add(deployment: Deployment, line: str, content: str) -> None:
    """Let somebody add an entry to a line by hand."""
    operation = Operation(kind=OperationKind.ADD, section="OTHERS", content=content)
    given = Command(command_id=content, playbook=line, kind="edit", operations=(operation,))
    await deployment.log.produce(outgoing(given))
    await deployment.until(lambda: content in contents(deployment, line))


def entry(deployment: Deployment, content: str, line: str = NAME) -> Entry:
    (found,) = (each for each in ledger.latest(deployment.log, line).entries if each.content == content)
    return found


async def why(deployment: Deployment, content: str) -> Lineage:
    own = entry(deployment, content)
    return await lineage(
        deployment.log, NAME, own.id, traces=False, on_progress=lambda _topic, _read, _total: None
    )


async def test_the_branch_s_content_becomes_the_playbook_s_next_version_and_both_learn_on() -> None:
    deployment = await ahead()
    before = ledger.latest(deployment.log)
    async with deployment.running():
        await adopt(deployment)
        adopted = ledger.latest(deployment.log)
        assert contents(deployment) == contents(deployment, LINE) == ledger.lessons([0, 1, 2, 10, 11])
        assert (adopted.version, adopted.origin, adopted.issued_by) == (2, "adopt", "user:test")
        assert adopted.adopted == Adopted(line=LINE, version=2)
        assert (adopted.batch_sequence, adopted.through_offset) == (1, before.through_offset)
        await publish(deployment, range(12, 16))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 4)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 4)
    assert members(deployment, NAME) == ids([*range(3), *range(10, 16)])
    assert members(deployment, LINE) == ids(range(10, 16))
    assert ledger.latest(deployment.log).adopted is None, "only the version that took it over says so"
    assert (await audit(deployment.log)).good


async def test_an_entry_that_both_lines_have_keeps_its_age_and_its_tags_go_on_counting() -> None:
    deployment = await ahead()
    own = entry(deployment, "lesson 0")
    async with deployment.running():
        await adopt(deployment)
        assert entry(deployment, "lesson 0").created_version == own.created_version
        tag = BulletTag(id=own.id, tag="helpful")
        shown = Shown(version=1, entry_ids=(own.id,))
        await publish(deployment, [12], bullet_tags=(tag,), shown=shown)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    assert entry(deployment, "lesson 0").helpful == 1


async def test_an_id_never_comes_to_mean_another_entry() -> None:
    deployment = await forked()
    async with deployment.running():
        await add(deployment, NAME, "only here")
        await add(deployment, LINE, "only there")
        taken = entry(deployment, "only here").id
        assert entry(deployment, "only there", LINE).id == taken
        await adopt(deployment)
        renamed = entry(deployment, "only there").id
        assert renamed not in {entry.id for entry in ledger.versions(deployment.log)[-2].entries}
        assert ledger.latest(deployment.log).adopted == Adopted(
            line=LINE, version=2, renamed={renamed: taken}
        )
        assert contents(deployment) == contents(deployment, LINE)
        await add(deployment, LINE, "there, later")
        await adopt(deployment)
        assert entry(deployment, "only there").id == renamed, "it says the same"
        await add(deployment, NAME, "newer")
    versions = ledger.versions(deployment.log)
    meant: dict[str, str] = {}
    for version in versions:
        for each in version.entries:
            assert meant.setdefault(each.id, each.content) == each.content


@pytest.mark.parametrize("is_back", [False, True])
async def test_tags_of_what_the_branch_had_read_count_once(*, is_back: bool) -> None:
    deployment = await forked()
    own, read = entry(deployment, "lesson 0"), first(deployment)
    fields = {
        "bullet_tags": (BulletTag(id=own.id, tag="helpful"),),
        "shown": shown_to(read, read.entries),
    }
    again = FORK.model_copy(update={"command_id": "again", "branch": "again"})
    async with deployment.running():
        await publish(deployment, [10, 11], **fields)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        assert entry(deployment, "lesson 0", LINE).helpful == 2
        await adopt(deployment)
        await deployment.log.produce(outgoing(again))
        await deployment.until(lambda: len(ledger.versions(deployment.log, again.line)) == 2)
        if is_back:
            await carried_out(deployment, await commands(deployment).rollback(NAME, 1))
            assert entry(deployment, "lesson 0").helpful == 0
        await publish(deployment, [12])
        await deployment.until(lambda: members(deployment, NAME)[-3:] == ids([10, 11, 12]))
        await deployment.until(lambda: ledger.versions(deployment.log)[-1].origin == "batch")
    assert members(deployment, again.line) == ids([10, 11])
    assert entry(deployment, "lesson 0", again.line).helpful == 2
    assert entry(deployment, "lesson 0").helpful == 2
    assert entry(deployment, "lesson 10").evidence_count == 1


async def test_a_batch_in_flight_is_applied_to_what_was_adopted() -> None:
    deployment = await ahead()
    async with deployment.running(["shuffle", "publish"]):
        await publish(deployment, [12])
        await deployment.until(lambda: len(ledger.batches(deployment.log)) == 2)
        await adopt(deployment)
        async with deployment.running(["scan"]):
            await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11, 12])
    assert [version.origin for version in ledger.versions(deployment.log)] == ["batch", "adopt", "batch"]
    assert (await audit(deployment.log)).good


# ---- refused


async def test_a_branch_that_has_not_read_what_the_playbook_has_is_flushed_first() -> None:
    deployment = await forked()
    async with deployment.running():
        await publish(deployment, [10, 11, 12])
        await deployment.until(lambda: both(deployment, 3))
        with pytest.raises(RefusedError, match=f"has not read 1 reflections.*flush {LINE}"):
            await adopt(deployment)
        await deployment.log.produce(outgoing(ADOPT))
        await deployment.until(lambda: bool(refused(deployment)))
        assert "has not read 3 reflections" in refused(deployment)[0]
        newest = ledger.latest(deployment.log).through_offset
        flush = await commands(deployment).flush(LINE, newest)
        await carried_out(deployment, flush)
        await adopt(deployment)
    assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11, 12])


async def test_repeats_make_no_branch_late() -> None:
    deployment = await ahead()
    async with deployment.running():
        await publish(deployment, [11, 10])
        flush = await commands(deployment).flush(NAME, 6)
        await carried_out(deployment, flush)
        read = [ledger.latest(deployment.log, line).through_offset for line in (LINE, NAME)]
        assert read[0] < read[1]
        await adopt(deployment)
    assert ledger.latest(deployment.log).origin == "adopt"


def unusable(prompt: Prompt) -> Mapping[str, Any]:
    if "lesson 12" in prompt.user or is_control(prompt):
        raise PoisonError("no usable reply")
    return echo(prompt)


async def test_what_failed_on_the_playbook_and_was_sent_again_makes_no_branch_late() -> None:
    deployment = await forked()
    deployment.model = ScriptedModel(unusable)
    async with deployment.running():
        await publish(deployment, [10, 11, 12])
        await deployment.until(lambda: len(ledger.dead_letters(deployment.log)) == BATCH)
    deployment.model = ScriptedModel(echo)
    failed = await ledger.stored_letters(deployment.log)
    async with deployment.running():
        await dead_letters.resend(deployment.log, deployment.clock, failed, {})
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        with pytest.raises(RefusedError, match="has not read 1 reflections"):
            await adopt(deployment)
        newest = ledger.latest(deployment.log).through_offset
        await carried_out(deployment, await commands(deployment).flush(LINE, newest))
        await adopt(deployment)
    assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11, 12])


async def test_what_has_failed_on_the_branch_it_has_not_read() -> None:
    """It was in a batch there, so the branch was adopted, and what the playbook had learned of it was gone."""
    deployment = await forked()
    deployment.model = ScriptedModel(unusable_on_the_branch)
    async with deployment.running():
        await publish(deployment, [10, 11, 12])
        await deployment.until(lambda: both(deployment, 3))
    assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11, 12])
    deployment.model = ScriptedModel(echo)
    failed = await ledger.stored_letters(deployment.log)
    async with deployment.running():
        newest = ledger.latest(deployment.log).through_offset
        await carried_out(deployment, await commands(deployment).flush(LINE, newest))
        with pytest.raises(RefusedError, match=r"has not read 2 reflections.*dead letters"):
            await adopt(deployment)
        await dead_letters.resend(deployment.log, deployment.clock, failed, {})
        await deployment.until(lambda: len(members(deployment, LINE)) == 5)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 4)
        await adopt(deployment)
    assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11, 12])


async def test_what_had_failed_before_the_fork_and_was_sent_again_later_the_branch_has_not_read() -> None:
    """It counts on the playbook alone, so an adoption would take it back."""
    deployment = await learned(model=ScriptedModel(echo))
    deployment.model = ScriptedModel(unusable)
    async with deployment.running():
        await publish(deployment, [10, 11, 12])
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    deployment.model = ScriptedModel(echo)
    failed = await ledger.stored_letters(deployment.log)
    async with deployment.running():
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
        await dead_letters.resend(deployment.log, deployment.clock, failed, {})
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
        with pytest.raises(RefusedError, match=r"has not read 3 reflections.*a new branch"):
            await adopt(deployment)
        await deployment.log.produce(outgoing(ADOPT))
        await deployment.until(lambda: bool(refused(deployment)))
        assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11, 12])
        await carried_out(deployment, await commands(deployment).revoke(NAME, ids([10, 11, 12])))
        await add(deployment, LINE, "only there")
        await adopt(deployment)
    assert contents(deployment) == {*ledger.lessons([0, 1, 2]), "only there"}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"version": 9}, f"{LINE} has no version 9; the newest is 1"),
        ({"branch": "nobody"}, f"there is no playbook {NAME}@nobody"),
        ({"branch": ""}, f"{NAME} is not a branch of {NAME}"),
    ],
    ids=str,
)
async def test_publish_refuses_what_cannot_be_adopted_and_work_goes_on(
    wrong: dict[str, Any], complaint: str
) -> None:
    deployment = await forked()
    async with deployment.running():
        await deployment.log.produce(outgoing(ADOPT.model_copy(update=wrong)))
        await deployment.until(lambda: bool(refused(deployment)))
        await publish(deployment, range(10, 13))
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 2)
    assert refused(deployment) == [complaint]


async def test_a_deleted_branch_is_not_adopted_nor_what_was_brought_back_of_it() -> None:
    deployment = await ahead()
    async with deployment.running():
        await deployment.log.produce(outgoing(DELETE))
        await deployment.until(lambda: ledger.versions(deployment.log, LINE)[-1].origin == "delete")
        with pytest.raises(RefusedError, match=f"there is no playbook {LINE} any more"):
            await adopt(deployment)
        await carried_out(deployment, await commands(deployment).rollback(LINE, 2))
        with pytest.raises(RefusedError, match="of no branch that learns"):
            await adopt(deployment)


# ---- once


def over(deployment: Deployment) -> bool:
    versions = ledger.versions(deployment.log)
    return any(version.origin == "adopt" for version in versions) and not ledger.behind(deployment.log)


async def asked() -> Deployment:
    """Return a deployment in which a branch is to be adopted, twice."""
    deployment = await ahead()
    given = ADOPT.model_copy(update={"version": 2})
    await deployment.log.produce(outgoing(given), outgoing(given))
    return deployment


async def test_killed_at_any_write_a_branch_is_adopted_once() -> None:
    failpoint, deployment = CrashFailpoint(), await asked()
    async with deployment.running(["publish"], failpoint=failpoint):
        await deployment.until(lambda: refused_or_done(deployment))
    for at in range(1, len(failpoint.points) + 1):
        deployment = await asked()
        with suppress(CrashError):
            async with deployment.running(["publish"], failpoint=CrashFailpoint(at)):
                await deployment.until(lambda: refused_or_done(deployment))  # noqa: B023
        async with deployment.running(["publish"]):
            await deployment.until(lambda: refused_or_done(deployment))  # noqa: B023
        made = [version.origin for version in ledger.versions(deployment.log)]
        assert made == ["batch", "adopt"], at
        assert contents(deployment) == ledger.lessons([0, 1, 2, 10, 11]), at


def refused_or_done(deployment: Deployment) -> bool:
    return not [at for at in ledger.behind(deployment.log) if at[0] == "publish"]


# ---- where it comes from


async def test_why_follows_an_adopted_entry_to_the_branch_and_to_the_playbook_at_the_fork() -> None:
    deployment = await ahead()
    async with deployment.running():
        await adopt(deployment)
        await publish(deployment, [12])
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 3)
    taught = await why(deployment, "lesson 10")
    assert [(each.reflection_id, each.line, each.sequence) for each in taught.sources] == [("r-10", LINE, 2)]
    assert taught.sources[0].reflection is not None
    assert [(version.name, version.version, change.kind) for version, change in taught.changes] == [
        (LINE, 2, "add"),
        (NAME, 2, "adopt"),
        (NAME, 3, "duplicate"),
    ]
    early = await why(deployment, "lesson 0")
    assert [(each.reflection_id, each.line, each.sequence) for each in early.sources] == [("r-0", NAME, 1)]
    assert [(version.name, version.version, change.kind) for version, change in early.changes] == [
        (NAME, 1, "add"),
        (LINE, 1, "import"),
        (NAME, 2, "adopt"),
    ]


async def test_why_of_an_entry_under_a_new_id_knows_the_old_one() -> None:
    deployment = await forked()
    async with deployment.running():
        await add(deployment, NAME, "only here")
        await publish(deployment, [10, 11])
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        await adopt(deployment)
    adopted = ledger.latest(deployment.log)
    assert adopted.adopted is not None
    (renamed,) = adopted.adopted.renamed
    for number in (10, 11):
        taught = await why(deployment, f"lesson {number}")
        assert [each.reflection_id for each in taught.sources] == ids([number])
        assert [version.name for version, _ in taught.changes] == [LINE, NAME]
    (kept,) = (each for each in adopted.entries if each.id == renamed)
    (gone,) = {"lesson 10", "lesson 11"} - {kept.content}
    async with deployment.running(["publish"]):
        ids_of_gone = entry(deployment, gone).evidence
        await carried_out(deployment, await commands(deployment).revoke(NAME, ids_of_gone))
    assert contents(deployment) == {*ledger.lessons(range(3)), kept.content}
    left = entry(deployment, kept.content)
    assert (left.id, left.created_version) == (kept.id, kept.created_version)


async def test_evidence_that_no_snapshot_names_is_followed_across_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "EVIDENCE_KEPT", 1)
    deployment = Deployment(batch_size=BATCH)
    async with deployment.running():
        await publish(deployment, range(BATCH), key_insight=SAME)
        await deployment.until(lambda: len(ledger.versions(deployment.log)) == 1)
        await deployment.log.produce(outgoing(FORK))
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 1)
        await publish(deployment, [10, 11], key_insight=SAME)
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 2)
        await adopt(deployment)
        (adopted,) = ledger.latest(deployment.log).entries
        assert (adopted.evidence_count, len(adopted.evidence)) == (5, 1)
        taught = await why(deployment, SAME)
        assert {(each.reflection_id, each.line) for each in taught.sources} == {
            *((each, NAME) for each in ids(range(BATCH))),
            *((each, LINE) for each in ids([10, 11])),
        }
        await carried_out(deployment, await commands(deployment).revoke(NAME, ids([0, 1, 2, 10])))
        assert counts(deployment) == counts(deployment, LINE) == [1], "the entry stays for what says the same"
        await publish(deployment, [12], key_insight=SAME)
        await deployment.until(lambda: counts(deployment) == [2])
        await carried_out(deployment, await commands(deployment).revoke(NAME, ids([11])))
        await deployment.until(lambda: counts(deployment) == [1])
    assert counts(deployment, LINE) == []
    assert (await audit(deployment.log)).good


def counts(deployment: Deployment, line: str = NAME) -> list[int]:
    return [each.evidence_count for each in ledger.latest(deployment.log, line).entries]


async def test_the_ledger_holds_after_an_adoption_and_the_branch_s_end() -> None:
    deployment = await ahead()
    async with deployment.running(ROLES):
        await adopt(deployment)
        await deployment.log.produce(outgoing(DELETE))
        await publish(deployment, range(12, 16))
        await deployment.until(lambda: len(members(deployment, NAME)) == 9)
        await deployment.until(lambda: not ledger.behind(deployment.log))
    found = await audit(deployment.log)
    assert (found.lost, found.double, found.violations) == (0, 0, ())
    taught = await why(deployment, "lesson 10")
    assert taught.sources[0].line == LINE, "the branch's records stay"


# ---- archived, and replayed


OTHERS = tuple("abcde")


async def adopted() -> Deployment:
    """Return a deployment in which a branch was adopted, and in which other playbooks had learned before."""
    deployment = await forked()
    async with deployment.running():
        for name in OTHERS:
            await publish(deployment, range(BATCH), playbook=name)
        await deployment.until(lambda: all(ledger.versions(deployment.log, name) for name in OTHERS))
        await add(deployment, LINE, "by hand")
        await publish(deployment, [10, 11])
        await deployment.until(lambda: len(ledger.versions(deployment.log, LINE)) == 3)
        await adopt(deployment)
        await deployment.until(lambda: not [at for at in ledger.behind(deployment.log) if at[0] != "shuffle"])
    return deployment


@pytest.mark.parametrize("partitions", [1, 3])
async def test_an_archive_of_one_playbook_takes_its_branches_along(tmp_path: Path, partitions: int) -> None:
    deployment = await adopted()
    await archived(deployment.log, tmp_path / "archive", playbook=NAME)
    moved = Deployment(batch_size=BATCH, partitions=partitions)
    await restored(tmp_path / "archive", moved.log)
    assert not any(ledger.versions(moved.log, name) for name in OTHERS)
    assert ledger.latest(deployment.log).counted_offset == members_end(deployment)
    assert ledger.latest(moved.log).counted_offset == members_end(moved) != members_end(deployment)
    assert "adopt" in [command.kind for command in ledger.messages(moved.log, topics.COMMANDS, Command)]
    async with moved.running():
        await publish(moved, range(12, 16))
        await moved.until(lambda: len(ledger.versions(moved.log)) == 4)
        await moved.until(lambda: len(ledger.versions(moved.log, LINE)) == 5)
    taught = await why(moved, "lesson 10")
    assert [(each.reflection_id, each.line) for each in taught.sources] == [("r-10", LINE)]
    assert (await audit(moved.log)).good


def members_end(deployment: Deployment) -> int:
    """Return the offset of the last reflection in the branch's batches."""
    return max(member.offset for batch in ledger.batches(deployment.log, LINE) for member in batch.members)


async def test_a_branch_is_archived_with_its_playbook_alone(tmp_path: Path) -> None:
    deployment = await forked()
    with pytest.raises(FatalError, match=f"archive {NAME}, which includes its branches"):
        await archived(deployment.log, tmp_path / "archive", playbook=LINE)


async def test_neither_a_branch_is_replayed_nor_what_was_adopted_from_one() -> None:
    deployment = await ahead()
    with pytest.raises(FatalError, match=f"{LINE} learns from {NAME}'s reflections"):
        await Replay(deployment.log, LINE, timeout_s=1).read()
    with pytest.raises(FatalError, match=f"{LINE} learns from {NAME}'s reflections"):
        await recording(deployment.log, LINE, Range())
    await Replay(deployment.log, NAME, timeout_s=1).read()
    async with deployment.running():
        await adopt(deployment)
    with pytest.raises(FatalError, match=f"version 2 of {NAME} was adopted from {LINE}"):
        await Replay(deployment.log, NAME, timeout_s=1).read()


async def test_an_entry_by_hand_is_so_on_a_branch_in_what_adopts_it_and_in_what_is_restored(
    tmp_path: Path,
) -> None:
    deployment = await forked()
    async with deployment.running():
        await add(deployment, NAME, "ours")
        again = await commands(deployment).branch(NAME, "second", {})
        await carried_out(deployment, again)
        assert entry(deployment, "ours", f"{NAME}@second").by_hand
        await add(deployment, LINE, "theirs")
        await adopt(deployment)
    assert entry(deployment, "theirs").by_hand
    assert not entry(deployment, "lesson 0").by_hand
    await archived(deployment.log, tmp_path / "archive", playbook=NAME)
    moved = Deployment(batch_size=BATCH)
    await restored(tmp_path / "archive", moved.log)
    assert entry(moved, "theirs").by_hand
