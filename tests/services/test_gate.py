"""The gate as services: what agents read, what a rejection takes back, whatever dies."""

import pytest

from combee.core.gate import gate as rules
from combee.core.gate.gate import Gate
from combee.core.gate.policy import GatePolicy, Judges
from combee.publish import gate as publish_gate
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.gate import Verdict
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Playbook
from combee_schemas.records import Outgoing
from combee_schemas.scan import Operation, OperationKind, Update
from support.deployment import Deployment
from support.gates import (
    add,
    batch,
    command,
    contents,
    decisions,
    deployment_with,
    labels,
    on_probation,
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

BOTH: Judges = ("evaluate", "approve")


async def sent(deployment: PlanningDeployment, *messages: Update | Command | Verdict) -> Playbook:
    """Send messages, and return the newest version then."""
    await send(deployment, *messages)
    return latest(deployment.log)


# ---- one candidate at a time


async def test_versions_wait_and_the_newest_is_judged_next() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), batch(2), batch(3))
    assert places(deployment.log) == (0, 1)
    await send(deployment, verdict(1, 0))
    assert places(deployment.log) == (1, 3)
    await send(deployment, verdict(3, 1))
    assert places(deployment.log) == (3, 0)
    assert [each.decided for each in decisions(deployment.log)] == ["opened", "accepted", "accepted"]
    assert all(version.gated for version in versions(deployment.log))


async def test_a_candidate_of_which_something_is_revoked_gives_way_to_the_version_without_it() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), batch(3))
    assert places(deployment.log) == (1, 2)
    await send(deployment, command("revoke", reflection_ids=("r-2",)))
    assert contents(latest(deployment.log)) == ["lesson 1", "lesson 3"]
    assert places(deployment.log) == (1, 4)
    await send(deployment, verdict(2, 1))
    assert places(deployment.log) == (1, 4)
    await send(deployment, verdict(4, 1))
    assert places(deployment.log) == (4, 0)


async def test_a_candidate_that_a_rollback_takes_back_is_not_accepted_after_it() -> None:
    """Who stopped bad advice by a rollback, and moved the label back, had it shown again by a judge that measures."""
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), verdict(2, 1), batch(3))
    assert places(deployment.log) == (2, 3)
    await send(deployment, command("rollback", "b", version=1))
    await send(deployment, command("promote", "p", label=PRODUCTION, version=1), verdict(3, 1))
    assert places(deployment.log)[0] == 1


@pytest.mark.parametrize("how", ["edit", "import"])
async def test_a_candidate_from_which_a_person_has_taken_something_is_not_accepted_after_it(how: str) -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2))
    (kept, one) = latest(deployment.log).entries
    removed = Operation(kind=OperationKind.REMOVE, section=one.section, content="", entry_ids=(one.id,))
    fields = {"operations": (removed,), "base_version": 2} if how == "edit" else {"entries": (kept,)}
    await send(deployment, command(how, **fields), verdict(2, 1))
    assert contents(latest(deployment.log)) == ["lesson 1"]
    assert places(deployment.log) == (1, 0)


async def test_what_a_rollback_has_brought_back_can_be_taken_out_of_its_candidate() -> None:
    deployment = deployment_with("evaluate")
    removed = Operation(kind=OperationKind.REMOVE, section="OTHERS", content="", entry_ids=("misc-00001",))
    edits = [command("edit", f"e-{n}", operations=(removed,)) for n in range(2)]
    await send(deployment, batch(1), verdict(1, 0), edits[0], verdict(2, 1))
    await send(deployment, command("rollback", version=1), edits[1], verdict(3, 2))
    assert places(deployment.log) == (2, 0)


async def test_what_a_person_adds_while_a_candidate_is_judged_is_judged_after_it() -> None:
    deployment = deployment_with("evaluate")
    own = Operation(kind=OperationKind.ADD, section="OTHERS", content="a person's words")
    await send(
        deployment, batch(1), verdict(1, 0), batch(2), command("edit", operations=(own,), base_version=2)
    )
    assert places(deployment.log) == (1, 2)


async def test_without_a_gate_all_is_as_it_was() -> None:
    deployment = PlanningDeployment()
    await send(deployment, batch(1), verdict(1, 0))
    assert labels(deployment.log) == {}
    assert decisions(deployment.log) == []
    assert not latest(deployment.log).gated


async def test_both_judges_have_to_accept() -> None:
    deployment = deployment_with(*BOTH)
    approval = command("approve", version=1, base_version=0, label=PRODUCTION, issued_by="user:ada")
    await send(deployment, batch(1), approval)
    assert places(deployment.log) == (0, 1)
    await send(deployment, verdict(1, 0))
    assert places(deployment.log) == (1, 0)
    (_, decision) = decisions(deployment.log)
    assert [(each.judge, each.judged_by) for each in decision.verdicts] == [
        ("approve", "user:ada"),
        ("evaluate", "model m"),
    ]
    assert decision.verdicts[1].figures == {"n": 40}


async def test_an_approval_counts_where_the_person_is_the_only_judge_left() -> None:
    deployment = deployment_with(*BOTH)
    approval = command("approve", version=1, base_version=0, label=PRODUCTION)
    await send(deployment, batch(1), approval)
    deployment.gates = GatePolicy(judges=("approve",))
    await send(deployment, batch(2))
    assert places(deployment.log) == (1, 2)
    assert [each.decided for each in decisions(deployment.log)] == ["opened", "accepted"]


async def test_what_changes_nothing_for_agents_is_not_judged() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), update(2, add("lesson 1", "r-2")))
    assert latest(deployment.log).version == 2
    assert places(deployment.log) == (1, 0)


# ---- a rejection


async def test_a_rejected_candidates_batches_are_taken_out_and_what_others_taught_is_judged_next() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), batch(3))
    assert places(deployment.log) == (1, 2)
    await send(deployment, verdict(2, 1, accepts=False))
    newest = latest(deployment.log)
    assert contents(newest) == ["lesson 1", "lesson 3"]
    assert (newest.origin, newest.issued_by) == ("revoke", "model m")
    assert [each.rule for each in newest.revocations] == ["candidate:2"]
    assert places(deployment.log) == (1, newest.version)
    decision = decisions(deployment.log)[-1]
    assert (decision.decided, decision.taken_back, decision.made) == ("rejected", 1, newest.version)


async def test_what_a_rejected_batch_has_reworded_may_be_said_again() -> None:
    deployment = deployment_with("evaluate")
    (one,) = (await sent(deployment, batch(1), verdict(1, 0))).entries
    reworded = [
        Operation(
            kind=OperationKind.UPDATE,
            section=one.section,
            content="lesson 1 in full",
            entry_ids=(one.id,),
            evidence=(f"r-{n}",),
        )
        for n in (2, 4)
    ]
    spoilt = update(2, reworded[0], add("lesson 2", "r-3"))
    newest = await sent(deployment, spoilt, verdict(2, 1, accepts=False))
    assert (contents(newest), newest.origin, newest.rejected) == (["lesson 1"], "revoke", ())
    assert contents(await sent(deployment, update(3, reworded[1]))) == ["lesson 1 in full"]


async def test_what_no_batch_made_is_not_undone_with_the_batches_of_a_rejected_candidate() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), verdict(2, 1, accepts=False))
    newest = await sent(deployment, batch(3), verdict(4, 1, accepts=False))
    assert (contents(newest), newest.origin, newest.rejected) == (["lesson 1"], "revoke", ())


async def test_a_rejected_reflection_never_counts_again() -> None:
    deployment = deployment_with("evaluate")
    again = update(3, add("lesson 2 in other words", "r-2"))
    await send(deployment, batch(1), verdict(1, 0), batch(2), verdict(2, 1, accepts=False), again)
    assert contents(latest(deployment.log)) == ["lesson 1"]
    assert places(deployment.log) == (1, 0)


async def test_what_was_asked_about_again_keeps_what_it_taught_before() -> None:
    """Its reflections came with batches whose version agents read already."""
    deployment = deployment_with("evaluate")
    first = update(1, add("lesson 1", "r-1"), add("lesson 1 and lesson 2", "r-1", "r-2"))
    again = update(2, add("lesson 3", "r-1"))
    again = again.model_copy(update={"plan": again.plan.model_copy(update={"reason": "revoke"})})
    await send(deployment, first, verdict(1, 0), command("revoke", reflection_ids=("r-2",)))
    assert contents(await sent(deployment, again, verdict(2, 1, accepts=False))) == ["lesson 1", "lesson 3"]
    newest = await sent(deployment, verdict(3, 1, accepts=False))
    assert (contents(newest), newest.rejected) == (["lesson 1"], ())
    assert contents(await sent(deployment, update(3, add("lesson 3", "r-4")))) == ["lesson 1", "lesson 3"]


async def test_a_batch_that_was_rolled_back_is_not_taken_back_with_a_candidate_that_never_had_it() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), command("rollback", "b", version=1), batch(3))
    assert places(deployment.log) == (1, 4)
    await send(deployment, verdict(4, 1, accepts=False), command("rollback", "f", version=2))
    assert contents(latest(deployment.log)) == ["lesson 1", "lesson 2"]


async def test_what_was_asked_about_again_keeps_nothing_that_batches_of_a_rejected_candidate_said_too() -> (
    None
):
    """Else nothing that is learned later reaches agents: each candidate shows it."""
    deployment = deployment_with("evaluate")
    again = update(4, add("pay twice", "r-2"))
    again = again.model_copy(update={"plan": again.plan.model_copy(update={"reason": "revoke"})})
    await send(deployment, batch(1), update(2, add("lesson 2", "r-2", "r-3")), verdict(1, 0), verdict(2, 1))
    await send(deployment, update(3, add("pay twice", "r-4")), again)
    production, candidate = places(deployment.log)
    while candidate:
        await send(deployment, verdict(candidate, production, accepts=False))
        production, candidate = places(deployment.log)
    assert contents(latest(deployment.log)) == ["lesson 1", "lesson 2"]


async def test_what_a_person_wrote_is_not_judged_anew_for_what_is_taken_back_already() -> None:
    deployment = deployment_with("evaluate")
    (one,) = (await sent(deployment, batch(1), verdict(1, 0))).entries
    wrote = Operation(
        kind=OperationKind.UPDATE, section=one.section, content="a person's words", entry_ids=(one.id,)
    )
    edit = command("edit", operations=(wrote,), base_version=2)
    await send(deployment, batch(2), edit, verdict(2, 1, accepts=False), verdict(4, 1, accepts=False))
    assert contents(latest(deployment.log)) == ["a person's words"]
    assert (latest(deployment.log).version, places(deployment.log)) == (4, (1, 0))


async def test_without_the_recomputation_the_rejected_lesson_would_be_in_the_next_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The protection switched off."""

    monkeypatch.setattr(publish_gate, "rejection", lambda *_: None)
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), batch(3), verdict(2, 1, accepts=False))
    assert places(deployment.log) == (1, 3)
    assert "lesson 2" in contents(latest(deployment.log))


async def test_what_a_rejected_batch_let_agents_see_is_proposed_again_and_may_be_supported_anew() -> None:
    deployment = deployment_with("evaluate")
    first = on_probation(update(1, add("lesson 1", "r-1", "r-2"), add("lesson 2", "r-3")))
    more = [on_probation(update(n, add("lesson 2", f"r-{n + 2}"))) for n in (2, 3)]
    await send(deployment, first, verdict(1, 0), more[0])
    assert places(deployment.log) == (1, 2)
    await send(deployment, verdict(2, 1, accepts=False))
    assert places(deployment.log) == (1, 0)
    newest = latest(deployment.log)
    assert [(entry.state, entry.support) for entry in newest.entries][1] == ("proposed", ("r-3",))
    assert newest.changes[-1].detail.startswith("proposed again")
    await send(deployment, more[1])
    assert places(deployment.log) == (1, 4)
    assert [entry.state for entry in latest(deployment.log).entries] == ["active", "active"]


async def test_a_version_made_meanwhile_does_not_let_agents_see_what_a_rejected_batch_promoted() -> None:
    deployment = deployment_with("evaluate")
    first = on_probation(update(1, add("lesson 1", "r-1", "r-2"), add("lesson 2", "r-3")))
    second = on_probation(update(2, add("lesson 2", "r-4")))
    third = on_probation(update(3, add("lesson 3", "r-5", "r-6")))
    await send(deployment, first, verdict(1, 0), second, third, verdict(2, 1, accepts=False))
    assert [entry.state for entry in latest(deployment.log).entries] == ["active", "proposed", "active"]
    assert places(deployment.log) == (1, 4)


async def test_the_first_candidate_of_a_playbook_can_be_rejected() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0, accepts=False))
    assert contents(latest(deployment.log)) == []
    assert places(deployment.log) == (0, 0)
    await send(deployment, batch(2))
    assert places(deployment.log) == (0, 3)


async def test_what_a_person_made_is_rejected_without_being_undone() -> None:
    deployment = deployment_with("evaluate")
    edit = command(
        "edit", operations=[Operation(kind=OperationKind.ADD, section="OTHERS", content="by hand")]
    )
    await send(deployment, batch(1), verdict(1, 0), edit, verdict(2, 1, accepts=False))
    assert contents(latest(deployment.log)) == ["lesson 1", "by hand"]
    assert places(deployment.log) == (1, 0)
    assert (decisions(deployment.log)[-1].taken_back, decisions(deployment.log)[-1].made) == (0, 0)


# ---- people


async def test_a_person_moves_production_past_the_judges_and_that_is_a_decision() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), verdict(2, 1), batch(3))
    back = command("promote", label=PRODUCTION, version=1, issued_by="user:ada")
    await send(deployment, back)
    assert places(deployment.log) == (1, 3)
    last = decisions(deployment.log)[-1]
    assert (last.decided, last.before, last.version, last.decided_by) == ("moved", 2, 1, "user:ada")
    await send(deployment, verdict(3, 2))
    assert places(deployment.log) == (1, 3), "a verdict beside another production version counted"
    await send(deployment, verdict(3, 1))
    assert places(deployment.log) == (3, 0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (command("promote", label=CANDIDATE, version=1), "has a gate, which alone sets the label candidate"),
        (command("approve", version=1, base_version=0), "asks evaluate"),
        (
            command("reject", version=7, base_version=0),
            "the candidate of support/refunds is version 1, not 7",
        ),
        (command("reject", version=1, base_version=3), "agents read no version of support/refunds by now"),
    ],
)
async def test_what_a_person_may_not_say_is_refused_with_the_reason(wrong: Command, why: str) -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), wrong)
    (letter,) = dead_letters(deployment.log)
    assert why in letter.reason
    assert places(deployment.log) == (0, 1)


async def test_a_command_that_comes_twice_has_one_effect() -> None:
    deployment = deployment_with("approve")
    approval = command("approve", version=1, base_version=0, label=PRODUCTION)
    await send(deployment, batch(1), approval, approval)
    assert [each.decided for each in decisions(deployment.log)] == ["opened", "accepted"]
    assert dead_letters(deployment.log) == []


async def test_a_deleted_playbook_that_comes_back_is_judged_like_a_new_one() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), command("delete"))
    assert labels(deployment.log) == {}
    await send(deployment, command("rollback", "c-2", version=1))
    assert places(deployment.log) == (0, 3)


# ---- verdicts that nobody should have written


async def test_a_person_is_not_whoever_may_write_verdicts() -> None:
    deployment = deployment_with("approve")
    await send(
        deployment, batch(1), verdict(1, 0, judge="approve"), verdict(1, 0, accepts=False, judge="nobody")
    )
    person, nobody = dead_letters(deployment.log)
    assert "by a command, not by a verdict" in person.reason
    assert nobody.reason == "there is no judge nobody"
    assert places(deployment.log) == (0, 1)


async def test_verdicts_that_cannot_be_read_are_dead_letters_and_late_ones_are_passed_over() -> None:
    deployment = deployment_with("evaluate")
    spoiled = Outgoing(topic=topics.VERDICTS.name, key=NAME.encode(), value=b"\xc1")
    await send(deployment, batch(1), verdict(1, 0), verdict(1, 0, accepts=False), verdict(8, 0))
    await deployment.log.produce(spoiled)
    await send(deployment)
    async with deployment.running(["publish"]):
        await deployment.until(lambda: over(deployment))
    assert places(deployment.log) == (1, 0)
    assert [letter.origin_topic for letter in dead_letters(deployment.log)] == [topics.VERDICTS.name]


async def test_two_verdicts_that_differ_count_once_and_without_that_the_second_would_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deployment = deployment_with(*BOTH)
    await send(deployment, batch(1), verdict(1, 0), verdict(1, 0, accepts=False))
    assert places(deployment.log) == (0, 1)

    def last_word(gate: Gate, said: Verdict) -> Gate:
        assert gate.candidate is not None
        candidate = gate.candidate.model_copy(update={"verdicts": (said,)})
        return Gate(production=gate.production, candidate=candidate)

    monkeypatch.setattr(rules, "judged", last_word)
    await send(deployment, verdict(1, 0, accepts=False))
    assert places(deployment.log) == (0, 0), "the protection was not switched off"


# ---- turned on and off


async def test_a_gate_that_is_turned_on_changes_nothing_for_agents_until_the_next_version() -> None:
    deployment = PlanningDeployment()
    await send(deployment, batch(1), batch(2))
    deployment.gates = GatePolicy(judges=("approve",))
    await send(deployment, batch(3))
    assert places(deployment.log) == (2, 3)
    opened = decisions(deployment.log)[0]
    assert (opened.decided, opened.version, opened.judges) == ("opened", 2, ("approve",))


async def test_a_gate_that_ended_before_it_accepted_anything_leaves_agents_what_they_read_when_it_is_back() -> (
    None
):
    deployment = deployment_with("approve")
    await send(deployment, batch(1))
    deployment.gates = GatePolicy(judges=())
    await send(deployment, batch(2))
    deployment.gates = GatePolicy(judges=("approve",))
    await send(deployment, batch(3))
    assert places(deployment.log) == (2, 3)


async def test_a_gate_that_is_turned_off_lets_agents_read_the_newest_again() -> None:
    deployment = deployment_with("approve")
    await send(deployment, batch(1))
    deployment.gates = GatePolicy(judges=())
    await send(deployment, batch(2))
    now = labels(deployment.log)
    assert CANDIDATE not in now
    assert now[PRODUCTION].gate == ()
    assert rules.label_read("", now[PRODUCTION], latest(deployment.log)) == "latest"


async def test_a_service_that_is_told_nothing_of_a_gate_leaves_it_closed() -> None:
    deployment = deployment_with("approve")
    await send(deployment, batch(1))
    deployment.gates = GatePolicy()
    await send(deployment, batch(2))
    assert places(deployment.log) == (0, 1)
    assert all(version.gated for version in versions(deployment.log))


# ---- whatever dies


async def story() -> Deployment:
    """Return all that publish gets: it accepts a candidate, rejects one, and is told otherwise when it is late."""
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1), verdict(1, 0), batch(2), batch(3))
    late = verdict(2, 1, accepts=False), verdict(2, 1)
    await deployment.log.produce(*map(topics.VERDICTS.record, late))
    return deployment


async def test_a_service_killed_at_any_write_decides_each_candidate_once() -> None:
    deaths = 0
    async for at, deployment in killed_at_each_write("publish", story, over):
        deaths += 1
        found = decisions(deployment.log)
        assert [each.decided for each in found] == ["opened", "accepted", "rejected"], f"killed at {at}"
        assert contents(latest(deployment.log)) == ["lesson 1", "lesson 3"], f"killed at {at}"
        assert places(deployment.log) == (1, 4), f"killed at {at}"
    assert deaths >= 5
