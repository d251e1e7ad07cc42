"""Decisions at gates: every wrong one is planted once; the same facts without it are clean."""

from combee.core.log.ledger import NOTHING, Ledger, checkpoint
from combee_schemas.gate import Decision
from combee_schemas.playbook import Label
from support.rows import each_row

NAME = "support/refunds"
GOOD = [
    Decision(playbook=NAME, decided="opened", version=0, decided_at_ms=1),
    Decision(playbook=NAME, decided="accepted", candidate=1, before=0, version=1, decided_at_ms=2),
    Decision(playbook=NAME, decided="rejected", candidate=3, before=1, version=1, decided_at_ms=3),
    Decision(playbook=NAME, decided="moved", before=1, version=2, decided_at_ms=4),
]


def production(version: int, moved_at_ms: int, *, gated: bool = True) -> Label:
    gate = ("approve",) if gated else ()
    return Label(playbook=NAME, label="production", version=version, moved_at_ms=moved_at_ms, gate=gate)


def judged(decisions: list[Decision], label: Label, before: Ledger | None = None) -> Ledger:
    known = NOTHING if before is None else checkpoint(before, read={}, last={}, now_ms=1)
    ledger = Ledger(beginnings={}, committed={}, checkpoint=known)
    ledger.decisions.label("labels[0]@9", label)
    for offset, decision in enumerate(decisions):
        ledger.decisions.add(f"decisions[0]@{offset}", decision)
    return ledger


def test_decisions_that_follow_from_one_another_and_their_label_are_clean() -> None:
    for count, version in enumerate((0, 1, 1, 2), 1):
        assert judged(GOOD[:count], production(version, count)).report().good
    assert judged([], production(7, 1, gated=False)).report().good, "a label alone is no gate"


def test_a_label_that_was_read_before_a_later_decision_is_compared_with_its_own() -> None:
    assert judged(GOOD, production(1, 3)).report().good


@each_row(
    ("decisions", "label", "told"),
    [
        ([*GOOD[:2], GOOD[1]], production(1, 2), "decides about version 1 of support/refunds, and 1 was"),
        ([*GOOD[:3], GOOD[2]], production(1, 3), "decides about version 3 of support/refunds, and 3 was"),
        (
            [GOOD[0], GOOD[2]],
            production(1, 3),
            "says that agents read version 1 of support/refunds: it was 0",
        ),
        (GOOD[1:2], production(1, 2), ""),
        (GOOD, production(3, 4), "labels[0]@9 shows version 3 of support/refunds: 2 was decided"),
        ([], production(3, 4), "labels[0]@9: no decision let support/refunds have this label"),
    ],
)
def test_what_does_not_agree_is_named(decisions: list[Decision], label: Label, told: str) -> None:
    found = judged(decisions, label).report()
    assert found.good == (not told)
    assert told in " ".join(found.violations)


def test_a_checkpoint_carries_the_last_decision() -> None:
    before = judged(GOOD[:2], production(1, 2))
    assert before.report().good
    assert judged(GOOD[2:3], production(1, 3), before).report().good
    again = judged(GOOD[1:2], production(1, 2), before).report()
    assert "decides about version 1" in again.violations[0]
