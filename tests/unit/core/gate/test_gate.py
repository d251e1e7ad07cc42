"""The gate's rules: whatever versions, verdicts and hands come, agents read what all judges accepted."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from combee.core.gate import gate as rules
from combee.core.gate.gate import Gate
from combee.core.gate.judges import JUDGES
from combee.core.gate.policy import GatePolicy, Judges, judges_in
from combee.core.playbook.versions import empty
from combee_schemas.gate import Decision, Judge, Verdict
from combee_schemas.playbook import LATEST, NO_LABEL, PRODUCTION, Entry, Label, Playbook
from support.rows import each_row

NAME = "support/refunds"


def version(number: int, said: str = "") -> Playbook:
    content = said or f"lesson {number}"
    return Playbook(
        name=NAME, version=number, entries=(Entry(id="misc-00001", section="OTHERS", content=content),)
    )


def new_gate(*judges: Judge) -> Gate:
    """Return the gate of a new playbook whose first version is the candidate."""
    gate, _ = rules.opened(NAME, judges, None, None, now_ms=1)
    return rules.with_candidate(gate, version(1), empty(NAME), now_ms=2)


def verdict(gate: Gate, judge: Judge, *, accepts: bool = True) -> Verdict:
    assert gate.candidate is not None
    return Verdict(
        playbook=NAME,
        candidate=gate.candidate.version,
        production=gate.production.version,
        judge=judge,
        accepts=accepts,
        reason="because",
        judged_by="me",
    )


def judged(gate: Gate, *verdicts: Verdict) -> Gate:
    for each in verdicts:
        found = rules.judged(gate, each)
        assert found is not None
        gate = found
    return gate


# ---- what one verdict does


def test_all_judges_together_open_and_one_closes() -> None:
    gate = new_gate("evaluate", "approve")
    one = judged(gate, verdict(gate, "evaluate"))
    assert rules.conclusion(one) is None
    assert rules.conclusion(judged(one, verdict(gate, "approve"))) == "accepted"
    assert rules.conclusion(judged(gate, verdict(gate, "approve", accepts=False))) == "rejected"


def test_a_decision_names_what_it_rests_on_and_agrees_with_the_label() -> None:
    gate = judged(new_gate("evaluate"), verdict(new_gate("evaluate"), "evaluate"))
    after, decision = rules.decided(gate, "accepted", now_ms=9)
    assert (after.production.version, after.candidate) == (1, None)
    assert after.production.moved_at_ms == decision.decided_at_ms == 9
    assert (decision.candidate, decision.before, decision.version) == (1, 0, 1)
    assert (decision.reason, decision.decided_by, decision.since_ms) == ("because", "me", 2)
    assert [each.judge for each in decision.verdicts] == ["evaluate"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"candidate": 9}, "the candidate of support/refunds is version 1, not 9"),
        ({"production": 9}, "agents read no version of support/refunds by now, not 9"),
    ],
)
def test_a_verdict_on_something_else_does_not_count(said: dict[str, int], why: str) -> None:
    gate = new_gate("evaluate")
    other = verdict(gate, "evaluate").model_copy(update=said)
    assert rules.judged(gate, other) is None
    assert rules.not_judged(gate, other).startswith(why)


def test_the_first_word_of_a_judge_holds() -> None:
    gate = judged(new_gate("evaluate", "approve"), verdict(new_gate("evaluate"), "evaluate"))
    assert rules.judged(gate, verdict(gate, "evaluate", accepts=False)) is None
    assert rules.judged(gate, verdict(gate, "evaluate")) is None


def test_a_judge_that_nobody_asks_decides_nothing_but_a_person_may_always_reject() -> None:
    gate = new_gate("evaluate")
    assert rules.judged(gate, verdict(gate, "canary", accepts=False)) is None
    assert rules.judged(gate, verdict(gate, "approve")) is None
    assert rules.conclusion(judged(gate, verdict(gate, "approve", accepts=False))) == "rejected"
    approved = judged(new_gate("evaluate", "approve"), verdict(gate, "approve"))
    assert rules.conclusion(judged(approved, verdict(gate, "approve", accepts=False))) == "rejected"


def test_what_says_the_same_to_agents_is_no_candidate() -> None:
    gate, _ = rules.opened(NAME, ("approve",), None, version(1), now_ms=1)
    assert rules.with_candidate(gate, version(2, "lesson 1"), version(1), now_ms=2).candidate is None
    found = rules.with_candidate(gate, version(3), version(1), now_ms=2).candidate
    assert found is not None
    assert found.version == 3


def test_a_gate_that_is_turned_on_leaves_agents_what_they_read() -> None:
    gate, decision = rules.opened(NAME, ("approve",), None, version(7), now_ms=1)
    assert (gate.production.version, decision.decided, decision.version) == (7, "opened", 7)
    known = Label(playbook=NAME, label=PRODUCTION, version=4, commands=("c",), command_offset=3)
    gate, _ = rules.opened(NAME, ("approve",), known, version(7), now_ms=1)
    assert (gate.production.version, gate.production.commands) == (4, ("c",))


def test_other_judges_judge_anew_and_who_remains_has_judged() -> None:
    gate = judged(new_gate("evaluate"), verdict(new_gate("evaluate"), "evaluate"))
    assert rules.with_judges(gate, ("evaluate",)) is gate
    assert rules.with_judges(gate, ("approve",)).verdicts == {}
    assert rules.with_judges(gate, ("evaluate", "approve")).verdicts == gate.verdicts


# ---- reading


@each_row("label", ["latest", "production", "staging"])
def test_who_asks_by_name_gets_what_was_asked_for(label: str) -> None:
    assert rules.label_read(label, new_gate("approve").production, version(1)) == label


def test_who_asks_for_no_label_gets_production_where_there_is_a_gate() -> None:
    assert rules.label_read(NO_LABEL, new_gate("approve").production, version(1)) == PRODUCTION
    assert rules.label_read(NO_LABEL, None, version(1)) == LATEST
    pinned = Label(playbook=NAME, label=PRODUCTION, version=1)
    assert rules.label_read(NO_LABEL, pinned, version(2)) == LATEST, "a label alone is no gate"


def test_a_version_that_comes_before_its_label_is_not_read() -> None:
    early = version(1).model_copy(update={"gated": True})
    assert rules.label_read(NO_LABEL, None, early) == PRODUCTION
    lifted = Label(playbook=NAME, label=PRODUCTION, version=0)
    assert rules.label_read(NO_LABEL, lifted, early) == LATEST


# ---- the setting


def test_judges_are_named_in_any_order_and_combined() -> None:
    assert judges_in("off") == ()
    assert judges_in("approve, evaluate") == ("evaluate", "approve")
    for wrong in ("", "on", "evaluate,", "off,approve"):
        with pytest.raises(ValueError, match="is not a judge: off, or some of evaluate, canary, approve"):
            judges_in(wrong)


def test_the_longest_pattern_goes_first_and_a_branch_has_no_gate() -> None:
    policy = GatePolicy(
        judges=("approve",), by_pattern={"support/*": ("evaluate",), "support/refunds": (), "*": ("canary",)}
    )
    assert policy.judges_of("support/tone") == ("evaluate",)
    assert policy.judges_of("support/refunds") == ()
    assert policy.judges_of("checkout") == ("canary",)
    assert policy.judges_of("support/tone@short") == ()
    assert policy.all_judges == {"approve", "evaluate", "canary"}


# ---- whatever happens


class AnyOrder(RuleBasedStateMachine):
    """A line of versions and its gate; verdicts come late, twice, from anybody, about anything."""

    def __init__(self) -> None:
        super().__init__()
        self.judges: Judges = ("evaluate", "approve")
        self.versions = [empty(NAME), version(1)]
        self.decisions: list[Decision] = []
        self.accepted: dict[int, set[Judge]] = {}
        """By candidate: who has accepted it beside the production version of then."""
        self.by_hand: set[int] = {0}
        gate, opened = rules.opened(NAME, self.judges, None, None, now_ms=0)
        self.decisions.append(opened)
        self.gate = gate
        self.look()

    def look(self) -> None:
        """Find the next candidate, as publish does with all that it writes."""
        production = self.versions[self.gate.production.version]
        before = self.gate.candidate
        self.gate = rules.with_candidate(self.gate, self.versions[-1], production, now_ms=0)
        if self.gate.candidate is not before and self.gate.candidate is not None:
            self.accepted[self.gate.candidate.version] = set()

    @rule(said=st.sampled_from(["", "the same"]))
    def learn(self, said: str) -> None:
        self.versions.append(version(len(self.versions), said))
        self.look()

    @rule(
        candidate=st.integers(1, 12),
        production=st.integers(0, 12),
        judge=st.sampled_from(list(JUDGES)),
        accepts=st.booleans(),
    )
    def say_anything(self, candidate: int, production: int, judge: Judge, accepts: bool) -> None:  # noqa: FBT001
        self.say(
            Verdict(playbook=NAME, candidate=candidate, production=production, judge=judge, accepts=accepts)
        )

    @precondition(lambda self: self.gate.candidate is not None)
    @rule(judge=st.sampled_from(["evaluate", "approve"]), accepts=st.booleans())
    def judge(self, judge: Judge, accepts: bool) -> None:  # noqa: FBT001
        self.say(verdict(self.gate, judge, accepts=accepts))

    def say(self, said: Verdict) -> None:
        found = rules.judged(self.gate, said)
        if found is None:
            return
        self.gate = found
        if said.accepts:
            self.accepted[said.candidate].add(said.judge)
        outcome = rules.conclusion(self.gate)
        if outcome is not None:
            self.gate, decision = rules.decided(self.gate, outcome, now_ms=0)
            self.decisions.append(decision)
            self.look()

    @rule(data=st.data())
    def move_by_hand(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.versions) - 1))
        label = Label(playbook=NAME, label=PRODUCTION, version=number, issued_by="me")
        self.gate, decision = rules.moved(self.gate, label, now_ms=0)
        self.by_hand.add(number)
        self.decisions.append(decision)
        if self.gate.candidate is not None:
            self.accepted[self.gate.candidate.version] = set()
        self.look()

    @invariant()
    def agents_read_what_all_judges_accepted_or_a_person_chose(self) -> None:
        number = self.gate.production.version
        assert number in self.by_hand or self.accepted[number] >= set(self.judges)

    @invariant()
    def each_candidate_has_one_decision_at_most_and_label_and_decision_agree(self) -> None:
        candidates = [each.candidate for each in self.decisions if each.candidate]
        assert len(candidates) == len(set(candidates))
        assert self.decisions[-1].version == self.gate.production.version

    @invariant()
    def what_waits_is_newer_than_all_that_was_decided(self) -> None:
        if self.gate.candidate is not None:
            assert self.gate.candidate.version > max((each.candidate for each in self.decisions), default=0)
            assert rules.conclusion(self.gate) is None

    @invariant()
    def something_waits_unless_agents_read_the_newest_or_it_was_rejected(self) -> None:
        newest, production = self.versions[-1], self.versions[self.gate.production.version]
        is_settled = newest.version <= self.gate.production.decided_through
        same = rules.content(newest) == rules.content(production)
        assert self.gate.candidate is not None or is_settled or same


TestAnyOrder = AnyOrder.TestCase
