import asyncio
from collections.abc import AsyncIterator
from itertools import count, islice
from random import Random
from typing import Any

import pytest

from combee.adapters.ports import FencedError, Outgoing
from combee.core.names import identity
from combee.core.playbook import executing
from combee.core.playbook import versions as versions_module
from combee.log.evidence import with_evidence
from combee_schemas import topics
from combee_schemas.base import Source
from combee_schemas.codec import encode
from combee_schemas.command import Command
from combee_schemas.playbook import Asked, Entry, Label, Playbook
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, OperationKind, Seen, Update
from support import ledger
from support.deployment import Deployment
from support.flat import flat
from support.ledger import NAME, batch_of, dead_letters, latest, outgoing, reflection, versions
from support.planned import PlanningDeployment

SECTION = "OTHERS"


@pytest.fixture
async def publishing() -> AsyncIterator[Deployment]:
    async with PlanningDeployment().running(["publish"]) as running:
        yield running


def add(content: str, *evidence: str) -> Operation:
    return Operation(kind=OperationKind.ADD, section=SECTION, content=content, evidence=evidence)


def update(
    sequence: int, *operations: Operation, name: str = NAME, reason: str = "size", **fields: Any
) -> Update:
    plan: dict[str, Any] = {
        "batch_id": identity.batch_id(name, sequence),
        "playbook": name,
        "sequence": sequence,
        "widths": (1,),
        "base_version": sequence - 1,
        "reflections": 1,
        "through_offset": 10 * sequence,
        "manifest_offset": sequence,
        "reason": reason,
    }
    told = {
        "plan": plan,
        "node_id": identity.node_id(plan["batch_id"], 0, 0),
        "status": "ok",
        "operations": operations,
        **fields,
    }
    return flat(Update, **told)


def command(command_id: str, kind: str, **fields: Any) -> Command:
    return Command.model_validate({"command_id": command_id, "playbook": NAME, "kind": kind, **fields})


async def send(deployment: Deployment, *messages: Update | Command) -> None:
    """Write records and wait until the publisher has finished with all of them."""
    await deployment.log.produce(*map(outgoing, messages))
    await deployment.until(lambda: not behind(deployment))


def behind(deployment: Deployment) -> list[tuple[str, str, int]]:
    return [at for at in ledger.behind(deployment.log) if at[0] == "publish"]


def contents(deployment: Deployment) -> list[str]:
    return [entry.content for entry in latest(deployment.log).entries]


def label(deployment: Deployment) -> int:
    return ledger.messages(deployment.log, topics.LABELS, Label)[-1].version


# ---- updates


async def test_each_update_makes_one_version_and_the_snapshot_knows_its_place_in_history(
    publishing: Deployment,
) -> None:
    await send(publishing, update(1, add("a", "r-1")), update(2, add("b", "r-2")))
    assert [(one.version, one.batch_sequence) for one in versions(publishing.log)] == [(1, 1), (2, 2)]
    snapshot = latest(publishing.log)
    assert (snapshot.through_offset, snapshot.manifest_offset) == (20, 2)
    (place,) = [
        record
        for record in ledger.records(publishing.log, topics.HISTORY)
        if record.offset == snapshot.history_offset
    ]
    assert place.value == encode(versions(publishing.log)[-1])


async def test_an_update_that_comes_before_its_predecessor_is_held(publishing: Deployment) -> None:
    await publishing.log.produce(outgoing(update(3, add("c"))), outgoing(update(2, add("b"))))
    await publishing.log.produce(Outgoing(topic="updates", value=b"after them", partition=1))
    await publishing.until(lambda: bool(dead_letters(publishing.log)))
    assert versions(publishing.log) == []
    await send(publishing, update(1, add("a")))
    assert [one.batch_sequence for one in versions(publishing.log)] == [1, 2, 3]
    assert contents(publishing) == ["a", "b", "c"]


async def test_a_held_update_survives_a_restart() -> None:
    deployment = PlanningDeployment()
    for sent in (update(2, add("b")), update(1, add("a"))):
        async with deployment.running(["publish"]):
            await deployment.log.produce(outgoing(sent), Outgoing(topic="updates", value=b"x", partition=1))
            await deployment.until(lambda: bool(dead_letters(deployment.log)))
    async with deployment.running(["publish"]):
        await deployment.until(lambda: not behind(deployment))
    assert [one.batch_sequence for one in versions(deployment.log)] == [1, 2]


async def test_an_update_that_comes_again_changes_nothing(publishing: Deployment) -> None:
    one, two = update(1, add("a")), update(2, add("b"))
    await send(publishing, one, one, two, one, two)
    assert [version.version for version in versions(publishing.log)] == [1, 2]


async def test_the_first_result_of_a_batch_counts(publishing: Deployment) -> None:
    await send(publishing, update(1, add("first")), update(1, add("second")))
    assert contents(publishing) == ["first"]


async def test_an_update_on_a_foreign_partition_is_dead_lettered(publishing: Deployment) -> None:
    await publishing.log.produce(Outgoing(topic="updates", value=encode(update(1, add("a"))), partition=0))
    await publishing.until(lambda: bool(dead_letters(publishing.log)))
    assert versions(publishing.log) == []


async def test_updates_of_many_playbooks_do_not_wait_for_each_other(publishing: Deployment) -> None:
    await publishing.log.produce(outgoing(update(2, add("b"))))
    await publishing.log.produce(*(outgoing(update(1, add(name), name=name)) for name in ("a", "b", "q")))
    await publishing.until(lambda: all(versions(publishing.log, name) for name in ("a", "b", "q")))
    assert versions(publishing.log) == []


async def test_a_held_update_that_cannot_be_applied_is_dead_lettered_itself(publishing: Deployment) -> None:
    full = Entry(id="x-1", section=SECTION, content="full", helpful=2**64 - 1)
    tags = (BulletTag(id="x-1", tag="helpful"),)
    tagged = Seen(reflection_id="r", offset=0, tags=tags, shown_version=1)
    await send(publishing, command("i", "import", entries=(full,)))
    await publishing.log.produce(outgoing(update(2, seen=(tagged,))), outgoing(update(3, add("c"))))
    await publishing.log.produce(outgoing(update(1, add("a"))))
    await publishing.until(lambda: bool(dead_letters(publishing.log)))
    assert [letter.value for letter in dead_letters(publishing.log)] == [encode(update(2, seen=(tagged,)))]
    await send(publishing, update(2, status="failed"))
    assert [one.batch_sequence for one in versions(publishing.log)] == [0, 1, 2, 3]


async def test_an_update_of_no_reflections_is_dead_lettered_and_the_next_one_is_done(
    publishing: Deployment,
) -> None:
    nobody = update(1, add("a"))
    nobody = nobody.model_copy(update={"plan": nobody.plan.model_copy(update={"reflections": 0})})
    await send(publishing, nobody, update(1, add("b")))
    assert [letter.value for letter in dead_letters(publishing.log)] == [encode(nobody)]
    assert contents(publishing) == ["b"]


@pytest.mark.parametrize(
    ("sent", "at"), [((1,), "after_update"), ((2, 1), "after_update"), ((), "after_command")]
)
async def test_a_bug_of_ours_ends_the_publisher_and_no_record_is_blamed_for_it(
    sent: tuple[int, ...], at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment, begun = PlanningDeployment(), versions_module.after_update

    def broken(current: Playbook, message: Update | Command, *args: Any, **options: Any) -> Playbook:
        if isinstance(message, Update) and message.plan.sequence < len(sent):
            return begun(current, message, *args, **options)
        raise ValueError("a bug of ours")

    monkeypatch.setattr(versions_module if sent else executing, at, broken)
    async with deployment.running(["publish"]):
        messages: list[Update | Command] = [update(number, add("a")) for number in sent]
        await deployment.log.produce(*map(outgoing, messages or [command("i", "import")]))
        with pytest.raises(ValueError, match="a bug of ours"):
            await deployment.until(lambda: bool(dead_letters(deployment.log)))
    assert dead_letters(deployment.log) == []


async def test_lost_reflections_are_dead_lettered_with_the_version_that_lacks_them(
    publishing: Deployment,
) -> None:
    await publishing.log.produce(outgoing(reflection(0)), outgoing(reflection(1)))
    seen = (Seen(reflection_id="r-0", offset=0), Seen(reflection_id="r-1", offset=1, ok=False))
    await send(publishing, update(1, seen=seen))
    (letter,) = dead_letters(publishing.log)
    assert (letter.record_id, letter.value) == ("r-1", encode(reflection(1)))
    assert batch_of(latest(publishing.log)).degraded


# ---- commands


async def test_a_rollback_is_a_new_version_with_the_old_content_and_the_new_bookkeeping(
    publishing: Deployment,
) -> None:
    await send(publishing, update(1, add("a")), update(2, add("b")), command("r", "rollback", version=1))
    snapshot = latest(publishing.log)
    assert contents(publishing) == ["a"]
    assert (snapshot.version, snapshot.batch_sequence, snapshot.through_offset) == (3, 2, 20)
    await send(publishing, update(3, add("c")))
    assert contents(publishing) == ["a", "c"]


async def test_what_was_revoked_counts_no_more_now_or_later(publishing: Deployment) -> None:
    await send(publishing, update(1, add("bad", "r-1"), add("both", "r-1", "r-2")))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    assert [(one.content, one.evidence, one.evidence_count) for one in latest(publishing.log).entries] == [
        ("both", ("r-2",), 1)
    ]
    await send(publishing, update(2, add("worse", "r-1"), add("good", "r-3", "r-1")))
    assert contents(publishing) == ["both", "good"]
    assert latest(publishing.log).entries[-1].evidence == ("r-3",)


async def test_a_rollback_does_not_bring_back_what_was_revoked(publishing: Deployment) -> None:
    await send(publishing, update(1, add("bad", "r-1"), add("good", "r-2")))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    await send(publishing, command("b", "rollback", version=1))
    assert contents(publishing) == ["good"]


async def test_a_revoked_source_never_counts_again_and_others_do(publishing: Deployment) -> None:
    await send(publishing, update(1, add("good", "r-1")))
    await send(publishing, command("v", "revoke", reflection_ids=("r-0",), rules=("source:shop", "text:x")))
    seen = tuple(
        Seen(reflection_id=f"r-{n}", offset=n, source=Source(name=name), tags=TAGGED, shown_version=1)
        for n, name in ((2, "shop"), (3, "desk"))
    )
    await send(publishing, update(2, add("bad", "r-2"), add("fair", "r-2", "r-3"), seen=seen))
    assert [(each.content, each.evidence) for each in latest(publishing.log).entries] == [
        ("good", ("r-1",)),
        ("fair", ("r-3",)),
    ]
    assert latest(publishing.log).entries[0].helpful == 1


THOUSAND = tuple(f"r-{n}" for n in range(1000))


@pytest.mark.parametrize("rules", [(), ("since:2026-01-01",)], ids=["given ids", "a rule"])
async def test_snapshots_keep_rules_however_many_reflections_were_revoked(rules: tuple[str, ...]) -> None:
    deployment = PlanningDeployment()
    async with deployment.running(["publish"]):
        await send(deployment, update(1, add("good", "r-x")))
        before = len(encode(latest(deployment.log)))
        await send(deployment, command("v", "revoke", reflection_ids=THOUSAND, rules=rules))
        assert latest(deployment.log).revoked == THOUSAND
        await send(deployment, update(2, add("good", "r-y")))
    async with deployment.running(["publish"]):
        await send(deployment, update(3, add("bad", "r-7"), add("fair", "r-7", "r-z")))
    newest = latest(deployment.log)
    assert (newest.revoked, [each.rule for each in newest.revocations]) == ((), [*rules] or ["ids:1000"])
    assert len(encode(newest)) < before + 1000
    assert [(each.content, each.evidence) for each in newest.entries] == [
        ("good", ("r-x", "r-y")),
        ("fair", ("r-z",)),
    ]


async def test_a_rule_that_is_given_again_means_what_it_meant_both_times(publishing: Deployment) -> None:
    await send(publishing, update(1, add("good", "r-x")))
    for number in (1, 2):
        gone = (f"r-{number}",)
        await send(publishing, command(f"v{number}", "revoke", reflection_ids=gone, rules=("text:pay",)))
    await send(publishing, update(2, add("bad", "r-1"), add("worse", "r-2"), add("fair", "r-3")))
    assert contents(publishing) == ["good", "fair"]


TAGGED = (BulletTag(id="misc-00001", tag="helpful"),)


def operation(kind: OperationKind, content: str, *entries: str, evidence: tuple[str, ...] = ()) -> Operation:
    return Operation(kind=kind, section=SECTION, content=content, entry_ids=entries, evidence=evidence)


UPDATE, MERGE, REMOVE = OperationKind.UPDATE, OperationKind.MERGE, OperationKind.REMOVE


async def test_an_entry_that_others_teach_too_keeps_its_id_and_gets_their_words(
    publishing: Deployment,
) -> None:
    await send(publishing, update(1, add("Ask first.", "r-1")), update(2, add("ask first", "r-2")))
    assert contents(publishing) == ["Ask first."]
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    (entry,) = latest(publishing.log).entries
    assert (entry.id, entry.content, entry.evidence) == ("misc-00001", "ask first", ("r-2",))


async def test_a_component_has_its_earlier_text_again(publishing: Deployment) -> None:
    await send(
        publishing,
        update(1, add("Answer briefly.", "r-1"), holds="components"),
        update(2, operation(UPDATE, "Pay at once.", "misc-00001", evidence=("r-2",)), holds="components"),
    )
    assert contents(publishing) == ["Pay at once."]
    await send(publishing, command("v", "revoke", reflection_ids=("r-2",)))
    assert contents(publishing) == ["Answer briefly."]


async def test_what_the_log_no_longer_explains_goes_if_it_rests_on_nothing_else(
    publishing: Deployment,
) -> None:
    entries = (
        Entry(id="misc-00001", section=SECTION, content="bad", evidence=("r-1",), evidence_count=1),
        Entry(id="misc-00002", section=SECTION, content="both", evidence=("r-1", "r-2"), evidence_count=2),
    )
    await send(publishing, command("i", "import", entries=entries))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    (entry,) = latest(publishing.log).entries
    assert (entry.content, entry.evidence, entry.evidence_count) == ("both", ("r-2",), 1)


BOTH = tuple(Seen(reflection_id=f"r-{n}", offset=n, tags=()) for n in (1, 2))
SECOND = Asked(offset=2, manifest_offset=1)


async def test_a_mixed_operation_is_dropped_and_its_other_reflections_are_asked_about_again(
    publishing: Deployment,
) -> None:
    await send(publishing, update(1, add("both", "r-1", "r-2"), seen=BOTH))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",), retained_from=2))
    assert (contents(publishing), latest(publishing.log).again) == ([], (SECOND,))
    await send(publishing, update(2, add("other", "r-7")))
    assert latest(publishing.log).again == (SECOND,)
    await send(publishing, update(3, add("mine", "r-2"), reason="revoke", seen=BOTH[1:]))
    assert (contents(publishing), latest(publishing.log).again) == (["other", "mine"], ())


async def test_whose_reflections_have_expired_is_dropped_and_nothing_is_asked(publishing: Deployment) -> None:
    await send(publishing, update(1, add("both", "r-1", "r-2"), seen=BOTH))
    await send(publishing, command("x", "revoke", reflection_ids=("r-1",), retained_from=3))
    assert (contents(publishing), latest(publishing.log).again) == ([], ())


async def test_what_was_asked_about_again_is_not_asked_once_more(publishing: Deployment) -> None:
    await send(publishing, update(1, add("both", "r-1", "r-2"), add("good", "r-3"), seen=BOTH))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    await send(publishing, update(2, add("mine", "r-2"), reason="revoke", seen=BOTH[1:]))
    await send(publishing, command("w", "revoke", reflection_ids=("r-3",)))
    assert (contents(publishing), latest(publishing.log).again) == (["mine"], ())
    await send(publishing, command("b", "rollback", version=1))
    assert (contents(publishing), latest(publishing.log).again) == ([], (SECOND,))
    await send(publishing, command("c", "rollback", version=3))
    assert (contents(publishing), latest(publishing.log).again) == (["mine"], ())


async def test_what_is_revoked_while_it_waits_to_be_asked_about_again_is_not_asked(
    publishing: Deployment,
) -> None:
    await send(publishing, update(1, add("both", "r-1", "r-2"), seen=BOTH))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    await send(publishing, command("w", "revoke", reflection_ids=("r-2",)))
    assert (contents(publishing), latest(publishing.log).again) == ([], ())


async def test_a_mixed_operation_of_which_nothing_is_left_anyway_is_not_asked_about_again(
    publishing: Deployment,
) -> None:
    await send(publishing, update(1, add("both", "r-1", "r-2"), seen=BOTH))
    remove = operation(REMOVE, "", "misc-00001")
    await send(publishing, command("e", "edit", operations=(remove,)))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    assert (contents(publishing), latest(publishing.log).again) == ([], ())


async def test_what_is_asked_about_again_counts_once_for_an_entry_however_much_that_rests_on(
    publishing: Deployment,
) -> None:
    seen = tuple(Seen(reflection_id=each, offset=n) for n, each in enumerate((*MANY, "r-x")))
    await send(publishing, update(1, add("the same", *MANY), add("both", "r-0", "r-x"), seen=seen))
    await send(publishing, command("v", "revoke", reflection_ids=("r-x",)))
    assert (contents(publishing), latest(publishing.log).again) == (
        ["the same"],
        (Asked(offset=0, manifest_offset=1),),
    )
    await send(publishing, update(2, add("the same", "r-0"), reason="revoke", seen=seen[:1]))
    assert [(each.content, each.evidence_count) for each in latest(publishing.log).entries] == [
        ("the same", 30)
    ]


async def test_an_edit_by_hand_stays_when_what_it_changed_is_revoked_in_part(publishing: Deployment) -> None:
    await send(publishing, update(1, add("ask", "r-1", "r-2"), add("gone", "r-1")))
    await send(publishing, command("e", "edit", operations=(operation(UPDATE, "by hand", "misc-00001"),)))
    await send(publishing, command("v", "revoke", reflection_ids=("r-1",)))
    (entry,) = latest(publishing.log).entries
    assert (entry.content, entry.evidence) == ("by hand", ("r-2",))


MANY = tuple(f"r-{n}" for n in range(30))


async def published_and_revoked(seed: int) -> list[tuple[str, int]]:
    """Return contents and evidence counts after a random life with merges, rollbacks, an import and revocations."""
    rng, sent = Random(seed), list[Update | Command]()
    ids = (f"e-{n}" for n in count())
    sequence = 0
    for step in range(14):
        kind = rng.choice(["batch"] * 6 + ["rollback", "revoke"]) if step > 2 else "batch"
        if kind == "batch":
            sequence += 1
            said = [add(f"lesson {rng.choice(WORDS)}", *islice(ids, rng.randrange(1, 6))) for _ in range(3)]
            pair = tuple(f"misc-{n:05d}" for n in rng.sample(range(1, 5), 2))
            merge = Operation(
                kind=OperationKind.MERGE,
                section=SECTION,
                content=f"both {step}",
                entry_ids=pair,
                evidence=("e-1",),
            )
            sent.append(update(sequence, *said, *([merge] if rng.random() < 0.3 else [])))
        elif kind == "rollback":
            sent.append(command(f"c{step}", kind, version=rng.randrange(1, step + 1)))
        else:
            gone = tuple(f"e-{n}" for n in rng.sample(range(40), 8))
            sent.append(command(f"c{step}", kind, reflection_ids=gone))
    gone = tuple(f"e-{n}" for n in range(0, 200, 2))
    async with PlanningDeployment(budget_tokens=60).running(["publish"]) as deployment:
        await send(deployment, *sent, command("last", "revoke", reflection_ids=gone))
    assert dead_letters(deployment.log) == []
    return [(one.content, one.evidence_count) for one in latest(deployment.log).entries]


WORDS = ("ask", "pay", "wait", "sign", "call", "sell", "post")


@pytest.mark.parametrize("seed", range(6))
async def test_counts_after_a_revocation_are_those_of_a_playbook_that_forgets_no_id(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    found = []
    for kept in (10**9, 2):
        monkeypatch.setattr(versions_module, "EVIDENCE_KEPT", kept)
        found.append(await published_and_revoked(seed))
    assert found[0] == found[1]


async def test_what_rests_on_a_version_is_read_from_it_where_it_names_all(
    publishing: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.log.evidence._followed", None)
    await send(publishing, update(1, add("bad", "r-1"), add("good", "r-2")))
    version = latest(publishing.log)
    assert await with_evidence(publishing.log, version) is version


async def test_a_revocation_that_takes_too_long_to_look_up_is_refused_and_holds_up_nobody(
    publishing: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: Any) -> AsyncIterator[Playbook]:
        await asyncio.Event().wait()
        yield Playbook(name=NAME, version=1)

    monkeypatch.setattr("combee.log.evidence.LOOK_UP_S", 0.01)
    monkeypatch.setattr("combee.log.evidence._versions", slow)
    await send(publishing, update(1, add("the same", *MANY)))
    await send(publishing, command("v", "revoke", reflection_ids=MANY), update(2, add("b", "r-x")))
    (letter,) = dead_letters(publishing.log)
    assert letter.reason.endswith("could not be read in 0 s: try again when the broker is less busy")
    assert contents(publishing) == ["the same", "b"]


COMMANDS = {
    "import": command("c", "import", entries=(Entry(id="x-1", section=SECTION, content="imported"),)),
    "edit": command("c", "edit", operations=(add("edited"),)),
    "rollback": command("c", "rollback", version=1),
    "revoke": command("c", "revoke", reflection_ids=("r-1",)),
    "promote": command("c", "promote", label="production", version=1),
    "edit of an old version": command("c", "edit", operations=(add("edited"),), base_version=1),
}


@pytest.mark.parametrize("sent", COMMANDS.values(), ids=COMMANDS.keys())
async def test_a_command_that_comes_again_has_no_second_effect(sent: Command) -> None:
    deployment = PlanningDeployment()
    async with deployment.running(["publish"]):
        await send(deployment, update(1, add("a", "r-1")), update(2, add("b", "r-2")), sent)
        await send(deployment, command("other", "promote", label="production", version=2))
        before = (versions(deployment.log), label(deployment))
        await send(deployment, sent)
    async with deployment.running(["publish"]):
        await send(deployment, sent)
    assert (versions(deployment.log), label(deployment)) == before
    assert dead_letters(deployment.log) == []


TWINS = (Entry(id="x-1", section=SECTION, content="a"), Entry(id="x-1", section=SECTION, content="b"))
USELESS = {
    "rollback to nowhere": command("c", "rollback", version=99),
    "rollback to 0": command("c", "rollback", version=0),
    "promote to nowhere": command("c", "promote", label="production", version=99),
    "promote to 0": command("c", "promote", label="production", version=0),
    "promote nothing": command("c", "promote", version=1),
    "promote with a long label": command("c", "promote", label="x" * 1000, version=1),
    "delete of nothing": Command(command_id="c", playbook="none", kind="delete"),
    "edit of a version to come": command("c", "edit", operations=(add("b"),), base_version=99),
    "import of twins": command("c", "import", entries=TWINS),
}


@pytest.mark.parametrize("sent", USELESS.values(), ids=USELESS.keys())
async def test_a_command_that_cannot_be_done_is_dead_lettered_and_the_next_one_is_done(sent: Command) -> None:
    deployment = PlanningDeployment()
    async with deployment.running(["publish"]):
        await send(deployment, update(1, add("a")), sent, command("next", "edit", operations=(add("b"),)))
    assert [letter.value for letter in dead_letters(deployment.log)] == [encode(sent)]
    assert contents(deployment) == ["a", "b"]


@pytest.mark.parametrize("kind", list(OperationKind))
@pytest.mark.parametrize("ids", [(), ("gone",), ("misc-00001", "misc-00001")], ids=str)
async def test_an_edit_that_names_the_wrong_entries_never_stops_the_publisher(
    publishing: Deployment, kind: OperationKind, ids: tuple[str, ...]
) -> None:
    odd = Operation(kind=kind, section=SECTION, content="odd", entry_ids=ids)
    await send(publishing, update(1, add("a")), command("c", "edit", operations=(odd,)))
    await send(publishing, update(2, add("z")))
    assert contents(publishing)[-1] == "z"
    assert latest(publishing.log).version == 3


async def test_an_edit_is_refused_if_an_entry_it_names_has_changed_since(publishing: Deployment) -> None:
    await send(publishing, update(1, add("a", "r-1"), add("b", "r-2")))
    first, second = (entry.id for entry in latest(publishing.log).entries)

    def reword(command_id: str, entry_id: str, base: int) -> Command:
        told = Operation(kind=OperationKind.UPDATE, content=f"{command_id} says", entry_ids=(entry_id,))
        return command(command_id, "edit", operations=(told,), base_version=base)

    await send(publishing, reword("one", first, 1), reword("two", first, 1), reword("three", second, 1))
    assert contents(publishing) == ["one says", "three says"]
    (letter,) = dead_letters(publishing.log)
    assert letter.reason == f"{first} changed since version 1: the newest is 2"


async def test_a_flush_is_not_the_publisher_s_business(publishing: Deployment) -> None:
    await send(publishing, command("f", "flush", through_offset=5))
    assert not versions(publishing.log)
    assert not dead_letters(publishing.log)


async def test_a_former_publisher_is_fenced_and_writes_nothing() -> None:
    deployment = PlanningDeployment()
    async with deployment.running(["publish"]):
        await send(deployment, update(1, add("a")))
        await deployment.log.transactor("publish-1")
        with pytest.raises(FencedError):
            await send(deployment, update(2, add("b")))
    assert [one.version for one in versions(deployment.log)] == [1]
    async with deployment.running(["publish"]):
        await deployment.until(lambda: not behind(deployment))
    assert [one.version for one in versions(deployment.log)] == [1, 2]


async def test_a_rollback_finds_its_version_behind_a_record_nobody_can_read(publishing: Deployment) -> None:
    await publishing.log.produce(Outgoing(topic="history", key=NAME.encode(), value=b"\xc1"))
    await send(publishing, update(1, add("a")), update(2, add("b")), command("r", "rollback", version=1))
    assert contents(publishing) == ["a"]
