"""A person rejects entries or a source of a candidate: the rest goes on as the next one, and nothing comes back."""

from dataclasses import replace
from pathlib import Path

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError
from combee.cli.replay.replaying import Replay
from combee.core.playbook.executing import after_command
from combee.core.playbook.lineage.branching import Adoption
from combee.core.playbook.shown import shown
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.command import Command
from combee_schemas.playbook import PRODUCTION
from combee_schemas.scan import Operation, OperationKind, Update
from support.archives import archived, restored
from support.deployment import Deployment
from support.forgetting import SUBJECT, everything, forgotten, names_subject, wish
from support.gates import (
    add,
    batch,
    command,
    contents,
    decisions,
    deployment_with,
    over,
    places,
    send,
    update,
    verdict,
)
from support.killed import killed_at_each_write
from support.ledger import NAME, dead_letters, latest, versions
from support.planned import PlanningDeployment

pytestmark = pytest.mark.usefixtures("quick_polls")
GOOD, BAD = "ask for the order number", "skip the fraud screening"


def approved(version: int, production: int) -> Command:
    return command("approve", f"a-{version}", version=version, base_version=production, label=PRODUCTION)


def rejected(version: int, production: int, **named: object) -> Command:
    reason = {"reason": "not ours", "issued_by": "user:ada"}
    return command(
        "reject",
        f"x-{version}",
        version=version,
        base_version=production,
        label=PRODUCTION,
        **reason,
        **named,
    )


def changed(kind: OperationKind, content: str, *evidence: str, ids: tuple[str, ...]) -> Operation:
    return Operation(kind=kind, section="OTHERS", content=content, entry_ids=ids, evidence=evidence)


def from_sources(update: Update, names: dict[str, str]) -> Update:
    """Return an update whose reflections have sources that are proven."""
    seen = tuple(
        each.model_copy(update={"source": Source(name=names[each.reflection_id], proven="key")})
        for each in update.result.seen
    )
    return update.model_copy(update={"result": update.result.model_copy(update={"seen": seen})})


def ids_of(deployment: Deployment, *said: str) -> list[str]:
    by_content = {entry.content: entry.id for entry in latest(deployment.log).entries}
    return [by_content[content] for content in said]


async def wrong_decisions(deployment: Deployment) -> list[str]:
    """Return what the ledger finds wrong about decisions and versions; the batches are invented."""
    return [each for each in (await audit(deployment.log)).violations if each.startswith("decision")]


async def waiting(*operations: Operation) -> PlanningDeployment:
    """Return a playbook whose agents read lesson 1, and whose second batch is the candidate."""
    deployment = deployment_with("approve")
    await send(deployment, batch(1), approved(1, 0), update(2, *operations))
    assert places(deployment.log) == (1, 2)
    return deployment


async def test_a_rejected_entry_goes_and_the_rest_of_its_batch_is_the_next_candidate() -> None:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)))
    newest = latest(deployment.log)
    assert contents(newest) == ["lesson 1", GOOD]
    assert (newest.origin, newest.issued_by, newest.revocations) == ("reject", "user:ada", ())
    assert [(change.kind, change.detail) for change in newest.changes] == [("remove", f"rejected: {BAD}")]
    assert places(deployment.log) == (1, 3)
    decision = decisions(deployment.log)[-1]
    assert (decision.decided, decision.taken_back, decision.made) == ("rejected", 0, 3)
    assert decision.verdicts[-1].entry_ids == (newest.changes[0].entry_id,)
    await send(deployment, approved(3, 1))
    assert places(deployment.log) == (3, 0)
    assert await wrong_decisions(deployment) == []


async def test_a_rejection_that_names_nothing_means_the_whole_candidate() -> None:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    await send(deployment, rejected(2, 1))
    assert contents(latest(deployment.log)) == ["lesson 1"]
    assert decisions(deployment.log)[-1].taken_back == 2


@pytest.mark.parametrize(
    "again",
    [add(BAD, "r-9"), add("Skip the fraud  screening.", "r-9"), add("no screening of fraud at all", "r-3")],
    ids=["in the same words", "spelt otherwise", "from the same reflection"],
)
async def test_a_rejected_entry_does_not_come_back_with_the_next_batch(again: Operation) -> None:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)), update(3, again))
    newest = latest(deployment.log)
    assert (newest.version, contents(newest)) == (4, ["lesson 1", GOOD])
    assert [change.kind for change in newest.changes] == ["dropped"]
    assert "a person rejected it" in newest.changes[0].detail


async def test_an_entry_whose_change_is_rejected_says_again_what_agents_read() -> None:
    deployment = deployment_with("approve")
    first = update(
        1, add("lesson 1", "r-1"), add("lesson 2", "r-2"), add("lesson 3", "r-3"), add("lesson 4", "r-4")
    )
    await send(deployment, first, approved(1, 0))
    one, two, three, four = ids_of(deployment, "lesson 1", "lesson 2", "lesson 3", "lesson 4")
    second = update(
        2,
        changed(OperationKind.UPDATE, BAD, "r-5", ids=(one,)),
        changed(OperationKind.REMOVE, "", "r-6", ids=(two,)),
        changed(OperationKind.MERGE, "lessons 3 and 4", "r-7", ids=(three, four)),
        add(GOOD, "r-8"),
    )
    before = {entry.id: entry for entry in latest(deployment.log).entries}
    await send(deployment, second, rejected(2, 1, entry_ids=[one, two, three, four]))
    now = {entry.id: entry for entry in latest(deployment.log).entries}
    assert {entry_id: entry.content for entry_id, entry in now.items() if entry_id in before} == {
        entry_id: entry.content for entry_id, entry in before.items()
    }
    assert [now[entry_id].evidence for entry_id in (one, two, three, four)] == [
        ("r-1",), ("r-2",), ("r-3",), ("r-4",),
    ]  # fmt: skip
    assert GOOD in contents(latest(deployment.log))
    again = update(3, changed(OperationKind.REMOVE, "", "r-6", ids=(two,)))
    await send(deployment, again)
    assert two in {entry.id for entry in latest(deployment.log).entries}, (
        "the same reflection removes it again"
    )


async def test_what_a_rejected_source_taught_since_production_is_taken_out_and_the_rest_goes_on() -> None:
    deployment = deployment_with("approve")
    of = {"r-1": "mallory", "r-2": "ada", "r-3": "mallory", "r-4": "mallory"}
    first, second, third = (
        from_sources(each, of)
        for each in (update(1, add("lesson 1", "r-1")), update(2, add(GOOD, "r-2"), add(BAD, "r-3")),
                     update(3, add("lesson 4", "r-4")))
    )  # fmt: skip
    await send(deployment, first, approved(1, 0), second, rejected(2, 1, sources=["mallory"]))
    newest = latest(deployment.log)
    assert contents(newest) == ["lesson 1", GOOD]
    assert [revocation.rule for revocation in newest.revocations] == ["candidate:2 mallory"]
    assert (decisions(deployment.log)[-1].taken_back, places(deployment.log)) == (1, (1, 3))
    await send(deployment, third)
    assert "lesson 4" in contents(latest(deployment.log)), "what it teaches later is judged by itself"
    assert await wrong_decisions(deployment) == []


async def test_what_a_rejected_source_taught_while_the_candidate_waited_is_taken_out_too() -> None:
    deployment = deployment_with("evaluate")
    of = {"r-2": "ada", "r-3": "mallory", "r-4": "mallory"}
    second = from_sources(update(2, add(GOOD, "r-2"), add(BAD, "r-3")), of)
    third = from_sources(update(3, add(BAD, "r-4")), of)
    await send(deployment, batch(1), verdict(1, 0), second, third, rejected(2, 1, sources=["mallory"]))
    assert contents(latest(deployment.log)) == ["lesson 1", GOOD]
    assert decisions(deployment.log)[-1].taken_back == 2
    await send(deployment, verdict(4, 1))
    assert places(deployment.log) == (4, 0)
    assert await wrong_decisions(deployment) == []


async def test_what_a_rejected_source_taught_when_it_was_asked_again_is_taken_out_and_no_others_lesson() -> (
    None
):
    deployment = deployment_with("evaluate")
    of = {"r-1": "mallory", "r-2": "ada", "r-3": "mallory", "r-4": "ada"}
    first = from_sources(
        update(1, add("lesson 1", "r-1"), add("lessons 1 and 2", "r-1", "r-2"), add("lesson 4", "r-4")), of
    )
    again = from_sources(update(2, add(BAD, "r-1"), add(GOOD, "r-4")), of)
    again = again.model_copy(update={"plan": again.plan.model_copy(update={"reason": "revoke"})})
    third = from_sources(update(3, add("lesson 3", "r-3")), of)
    await send(deployment, first, verdict(1, 0), command("revoke", reflection_ids=("r-2",)), verdict(2, 1))
    await send(deployment, again, third, rejected(3, 2, sources=["mallory"]))
    assert contents(latest(deployment.log)) == ["lesson 4", GOOD]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        (
            {"entry_ids": ["oth-00009"]},
            f"version 2 of {NAME} changes no entry oth-00009: choose of misc-00002",
        ),
        ({"sources": ["nobody"]}, "since what agents read, from nobody: choose of unproven"),
    ],
)
async def test_what_the_candidate_does_not_have_is_refused_with_what_it_has(
    named: dict[str, object], why: str
) -> None:
    deployment = await waiting(add(GOOD, "r-2"))
    await send(deployment, rejected(2, 1, **named))
    (letter,) = dead_letters(deployment.log)
    assert why in letter.reason
    assert "combee review" in letter.reason
    assert places(deployment.log) == (1, 2)


# ---- later versions


async def test_a_rejected_entry_stays_out_when_something_else_is_revoked() -> None:
    deployment = await waiting(add(GOOD, "r-2"), add("a third lesson", "r-4"), add(BAD, "r-3"))
    await send(
        deployment,
        rejected(2, 1, entry_ids=ids_of(deployment, BAD)),
        update(3, add("a later lesson", "r-5")),
        command("revoke", "v", reflection_ids=["r-4"]),
    )
    assert contents(latest(deployment.log)) == ["lesson 1", GOOD, "a later lesson"]


async def test_an_entry_that_was_restored_goes_when_what_taught_it_is_revoked() -> None:
    deployment = deployment_with("approve")
    await send(deployment, update(1, add("lesson 1", "r-1"), add(GOOD, "r-2")), approved(1, 0))
    (one,) = ids_of(deployment, "lesson 1")
    await send(deployment, update(2, changed(OperationKind.UPDATE, BAD, "r-3", ids=(one,))))
    await send(deployment, rejected(2, 1, entry_ids=[one]), command("revoke", "v", reflection_ids=["r-1"]))
    assert contents(latest(deployment.log)) == [GOOD]


async def test_a_rollback_to_a_rejected_candidate_brings_back_the_rest_alone_also_after_a_revocation() -> (
    None
):
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"), add("a third lesson", "r-4"))
    back, revoked = command("rollback", "b", version=2), command("revoke", "v", reflection_ids=["r-4"])
    await send(
        deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)), update(3, add("later", "r-5")), back
    )
    assert contents(latest(deployment.log)) == ["lesson 1", GOOD, "a third lesson"]
    await send(deployment, revoked)
    assert contents(latest(deployment.log)) == ["lesson 1", GOOD]


async def test_what_a_person_writes_again_by_hand_stays() -> None:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    edit = command("edit", "e", operations=[Operation(kind=OperationKind.ADD, section="OTHERS", content=BAD)])
    revoked = command("revoke", "v", reflection_ids=["r-2"])
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)), edit, revoked)
    assert contents(latest(deployment.log)) == ["lesson 1", BAD]


# ---- what it is for


async def test_every_honest_lesson_is_kept_where_each_batch_has_a_malicious_one() -> None:
    """49 honest lessons in seven batches, each with one entry that a person rejects."""
    honest, kept = [f"honest lesson {n} of many" for n in range(49)], {}
    for by_entry in (False, True):
        deployment = deployment_with("approve")
        for turn in range(7):
            operations = [
                add(said, f"h-{turn}-{n}") for n, said in enumerate(honest[turn * 7 : turn * 7 + 7])
            ]
            await send(deployment, update(turn + 1, *operations, add(f"{BAD} of shop {turn}", f"m-{turn}")))
            production, candidate = places(deployment.log)
            bad = [entry.id for entry in latest(deployment.log).entries if BAD in entry.content]
            await send(
                deployment, rejected(candidate, production, **({"entry_ids": bad} if by_entry else {}))
            )
            production, candidate = places(deployment.log)
            if candidate:
                await send(deployment, approved(candidate, production))
        production, _ = places(deployment.log)
        version = next((each for each in versions(deployment.log) if each.version == production), None)
        said = {entry.content for entry in shown(version).entries} if version else set()
        kept[by_entry] = len(said.intersection(honest)), len(said.difference(honest))
    assert kept == {False: (0, 0), True: (49, 0)}


# ---- whatever dies


async def story() -> PlanningDeployment:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    only = rejected(2, 1, entry_ids=ids_of(deployment, BAD))
    await deployment.log.produce(topics.COMMANDS.record(only), topics.COMMANDS.record(only))
    return deployment


async def test_a_service_killed_at_any_write_rejects_once() -> None:
    deaths = 0
    async for at, deployment in killed_at_each_write("publish", story, over):
        deaths += 1
        assert [each.decided for each in decisions(deployment.log)] == ["opened", "accepted", "rejected"], at
        assert contents(latest(deployment.log)) == ["lesson 1", GOOD], f"killed at {at}"
        assert places(deployment.log) == (1, 3), f"killed at {at}"
        assert dead_letters(deployment.log) == []
    assert deaths


# ---- elsewhere


@pytest.mark.parametrize("named", [{}, {"entry_ids": ["misc-00003"]}], ids=["whole", "one entry"])
async def test_a_replay_says_at_once_that_it_does_not_repeat_a_rejection(named: dict[str, object]) -> None:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    await send(deployment, rejected(2, 1, **named))
    with pytest.raises(FatalError, match=r"version 3 of .* was made by a rejection at the gate"):
        await Replay(deployment.log, NAME, recorded=True, timeout_s=1).read()


async def test_a_rejected_entry_stays_out_of_a_branch_that_is_adopted_and_of_a_new_one() -> None:
    line = f"{NAME}@terse"
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    current = latest(deployment.log)
    adoption = Adoption(line=current, target=current, forked=current, unread=0)
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)))
    now = latest(deployment.log)
    adopted = after_command(
        now,
        Command(command_id="ad", playbook=NAME, kind="adopt", branch="terse", version=2),
        9,
        target=None,
        budget_tokens=1000,
        now_ms=1,
        adoption=replace(adoption, target=current.model_copy(update={"name": line})),
    )
    assert contents(adopted) == ["lesson 1", GOOD]


async def test_what_was_rejected_is_the_same_in_a_restored_log_and_bars_there_too(tmp_path: Path) -> None:
    deployment = await waiting(add(GOOD, "r-2"), add(BAD, "r-3"))
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)))
    await archived(deployment.log, tmp_path / "archive")
    target = deployment_with("approve")
    plain = MemoryLog(target.clock, partitions=2, scan_partitions=3)
    await restored(tmp_path / "archive", plain)
    target.log._store = plain._store
    assert latest(target.log).rejected == latest(deployment.log).rejected != ()
    await send(target, update(3, add(BAD, "r-9")))
    assert contents(latest(target.log)) == ["lesson 1", GOOD]


async def test_forgetting_takes_what_was_rejected_too(tmp_path: Path) -> None:
    named = f"write to {SUBJECT} first"
    deployment = await waiting(add(GOOD, "r-2"), add(named, "r-3"))
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, named)))
    (rejection,) = latest(deployment.log).rejected
    new = MemoryLog(deployment.clock, partitions=2, scan_partitions=3)
    await forgotten(deployment.log, new, tmp_path, wish())
    assert not any(map(names_subject, everything(new)))
    assert rejection.said
    assert not any(rejection.said.encode() in raw for raw in everything(new))


async def test_a_source_is_rejected_after_an_entry_of_the_same_candidate() -> None:
    deployment = deployment_with("approve")
    of = {"r-2": "ada", "r-3": "mallory", "r-4": "mallory"}
    second = from_sources(update(2, add(GOOD, "r-2"), add(BAD, "r-3"), add("lesson 4", "r-4")), of)
    await send(deployment, batch(1), approved(1, 0), second)
    await send(deployment, rejected(2, 1, entry_ids=ids_of(deployment, BAD)))
    assert places(deployment.log) == (1, 3)
    await send(deployment, rejected(3, 1, sources=["mallory"]))
    assert contents(latest(deployment.log)) == ["lesson 1", GOOD]
