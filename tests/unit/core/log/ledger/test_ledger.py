"""Every violation is planted once; the same facts without it are clean."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from combee.core.batching.plan import Base, plan_batch
from combee.core.log.ledger import Ledger, LedgerReport
from combee_schemas.batch import Batch, Member
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import AppliedBatch, Entry, Playbook
from combee_schemas.scan import Operation, OperationKind, Seen, Update
from support.flat import changed, flat
from support.rows import each_row

NAME = "a/b"
PARTITION = 2
JUDGED = ("reflections", "batches", "updates", "history", "dead-letters")
POLICY = PlanSettings(copies=2, fan_in=32, max_levels=4, group_bytes=700 * 1024)


@dataclass
class Facts:
    """What stands in the topics, to be spoiled and then judged."""

    reflections: list[tuple[int, int, str]] = field(default_factory=list)
    """(partition, offset, id)."""
    undecodable: list[tuple[int, int]] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    batches: list[tuple[int, Batch]] = field(default_factory=list)
    updates: list[tuple[int, Update]] = field(default_factory=list)
    history: list[tuple[int, Playbook]] = field(default_factory=list)
    snapshots: list[Playbook | None] = field(default_factory=list)
    committed: int | None = None
    beginnings: dict[str, int] = field(default_factory=dict)
    settled: int | None = None

    def judge(self) -> LedgerReport:
        passed = max((offset for _, offset, _ in self.reflections), default=-1) + 1
        ledger = Ledger(
            beginnings={topic: {PARTITION: self.beginnings.get(topic, 0)} for topic in JUDGED},
            committed={PARTITION: passed if self.committed is None else self.committed},
            settled=None if self.settled is None else {PARTITION: self.settled},
        )
        for offset, snapshot in enumerate(self.snapshots):
            ledger.snapshot(PARTITION, offset, NAME, snapshot)
        for letter in self.dead:
            ledger.dead_letter(letter)
        for offset, batch in self.batches:
            ledger.batch(PARTITION, offset, batch)
        for offset, version in self.history:
            ledger.version(PARTITION, offset, version)
        for offset, update in self.updates:
            ledger.update(PARTITION, offset, update)
        for partition, offset, one in self.reflections:
            ledger.reflection(partition, offset, NAME, one)
        for partition, offset in self.undecodable:
            ledger.undecodable(partition, offset, "not msgpack")
        return ledger.report()

    def batch(self, sequence: int) -> Batch:
        return next(batch for _, batch in self.batches if batch.plan.sequence == sequence)

    def spoil_batch(self, sequence: int, /, **changes: object) -> None:
        self.batches = [
            (at, changed(b, **changes) if b.plan.sequence == sequence else b) for at, b in self.batches
        ]

    def spoil_version(self, version: int, /, **changes: object) -> None:
        self.history = [(at, changed(v, **changes) if v.version == version else v) for at, v in self.history]

    def spoil_snapshot(self, **changes: object) -> None:
        (snapshot,) = self.snapshots
        assert snapshot is not None
        self.snapshots = [snapshot.model_copy(update=changes)]

    def spoil_update(self, sequence: int, /, **changes: object) -> None:
        self.updates = [
            (at, changed(u, **changes) if u.plan.sequence == sequence else u) for at, u in self.updates
        ]


def manifest(sequence: int, members: Sequence[Member]) -> Batch:
    return plan_batch(
        NAME,
        sequence,
        members,
        [100] * len(members),
        settings=POLICY,
        base=Base(version=sequence - 1, sequence=sequence - 1),
        reason="size",
        batch_size=len(members),
        through_offset=members[-1].offset,
    )


def add(*evidence: str) -> Operation:
    return Operation(kind=OperationKind.ADD, section="OTHERS", content="x", evidence=evidence)


def update_of(batch: Batch, manifest_offset: int) -> Update:
    ids = [member.reflection_id for member in batch.members]
    return flat(
        Update,
        plan=batch.plan,
        manifest_offset=manifest_offset,
        node_id="n",
        status="ok",
        operations=(add(ids[0], ids[-1]),),
        seen=tuple(Seen(reflection_id=m.reflection_id, offset=m.offset) for m in batch.members),
    )


def version_of(batch: Batch) -> Playbook:
    entry = Entry(id=f"misc-{batch.plan.sequence:05d}", section="OTHERS", content="x")
    return Playbook(
        name=NAME,
        version=batch.plan.sequence,
        entries=(entry,),
        origin="batch",
        batch=AppliedBatch(plan=batch.plan),
        batch_sequence=batch.plan.sequence,
    )


def facts(batches: int = 3, size: int = 9) -> Facts:
    made = Facts(reflections=[(PARTITION, at, f"r{at}") for at in range(batches * size)])
    for sequence in range(1, batches + 1):
        own = made.reflections[(sequence - 1) * size : sequence * size]
        batch = manifest(sequence, [Member(offset=at, reflection_id=one) for _, at, one in own])
        made.batches.append((sequence * 2, batch))
        made.updates.append((sequence, update_of(batch, sequence * 2)))
        made.history.append((sequence * 2, version_of(batch)))
    made.snapshots.append(made.history[-1][1].model_copy(update={"history_offset": made.history[-1][0]}))
    return made


def letter(offset: int, record_id: str = "", partition: int = PARTITION) -> DeadLetter:
    return DeadLetter(
        origin_topic="reflections",
        origin_partition=partition,
        origin_offset=offset,
        service="shuffle",
        reason="why not",
        record_id=record_id,
        playbook=NAME if record_id else "",
    )


def only(report: LedgerReport, *words: str) -> None:
    assert len(report.violations) == 1, report.violations
    assert all(word in report.violations[0] for word in words), report.violations
    assert not report.good


# ---- fates


PLANTED: Mapping[str, tuple[Callable[[Facts], object], Sequence[str]]] = {
    "a seed that does not follow from the members": (
        lambda made: made.spoil_batch(2, seed=7),
        ("seed", "batches[2]@4"),
    ),
    "a member that nobody published": (lambda made: made.reflections.pop(5), ("member", "r5", "batch 1")),
    "evidence that is not a member": (
        lambda made: made.spoil_update(1, operations=(add("r0", "r9"),)),
        ("evidence", "r9", "batch 1"),
    ),
    "a published batch without an update": (lambda made: made.updates.pop(1), ("update", "batch 2")),
    "a version that counts other members than its batch has": (
        lambda made: made.spoil_version(2, reflections=8),
        ("counts 8 reflections", "batch 2 has 9"),
    ),
    "a version that names another batch": (
        lambda made: made.spoil_version(2, batch_id="b-other"),
        ("b-other",),
    ),
    "a snapshot that differs from its version": (
        lambda made: made.spoil_snapshot(entries=()),
        ("snapshot", "playbooks[2]@0"),
    ),
    "a snapshot that ran ahead of history": (
        lambda made: made.snapshots.append(
            made.history[2][1].model_copy(update={"version": 9, "history_offset": 6})
        ),
        ("snapshot", "version 9", "ends at version 3"),
    ),
    "a snapshot that misplaces itself": (
        lambda made: made.spoil_snapshot(history_offset=1),
        ("offset 1 of history",),
    ),
    "snapshots whose versions do not rise": (
        lambda made: made.snapshots.append(made.snapshots[0]),
        ("snapshot version", "playbooks[2]@1"),
    ),
}


@pytest.mark.parametrize(("spoil", "words"), PLANTED.values(), ids=PLANTED)
def test_a_planted_violation_is_the_only_one_told(
    spoil: Callable[[Facts], object], words: Sequence[str]
) -> None:
    made = facts()
    spoil(made)
    only(made.judge(), *words)


def test_a_clean_log_has_every_reflection_applied_and_no_violation() -> None:
    report = facts().judge()
    assert report.good
    assert (report.reflections, report.applied) == (27, 27)


def test_the_json_shape_is_the_documented_one_with_the_horizon_beside_it() -> None:
    shape = facts(batches=1).judge().model_dump(mode="json")
    assert " ".join(shape) == (
        "reflections applied pending dead_lettered dropped lost double duplicates traces conflicts violations"
        " model_calls erasures continued_from_ms horizon good"
    )


def test_reflections_of_an_unpublished_batch_are_pending() -> None:
    made = facts()
    made.updates.pop()
    made.history.pop()
    made.snapshots = [made.history[-1][1].model_copy(update={"history_offset": made.history[-1][0]})]
    report = made.judge()
    assert report.good
    assert (report.applied, report.pending) == (18, 9)


def test_reflections_at_or_after_the_committed_offset_are_pending() -> None:
    made = facts()
    made.reflections.append((PARTITION, 27, "new"))
    made.committed = 27
    report = made.judge()
    assert report.good
    assert report.pending == 1


def test_a_reflection_passed_by_shuffle_and_nowhere_else_is_lost() -> None:
    made = facts()
    made.reflections.append((PARTITION, 27, "gone"))
    report = made.judge()
    assert report.lost == 1
    only(report, "lost", "gone", f"reflections[{PARTITION}]@27")


def test_a_dead_lettered_member_counts_as_dead_lettered_not_as_applied() -> None:
    made = facts()
    made.dead += [letter(4, "r4"), letter(4, "r4")]
    report = made.judge()
    assert report.good
    assert (report.applied, report.dead_lettered) == (26, 1)


def test_a_retry_that_got_through_undoes_the_burial() -> None:
    made = facts()
    made.dead.append(letter(4, "r4"))
    members = [Member(offset=27, reflection_id="r4", attempt=1)]
    batch = manifest(4, members)
    made.reflections.append((PARTITION, 27, "r4"))
    made.batches.append((8, batch))
    made.updates.append((4, update_of(batch, 8)))
    made.history.append((8, version_of(batch)))
    made.snapshots = [made.history[-1][1].model_copy(update={"history_offset": 8})]
    report = made.judge()
    assert report.good
    assert (report.reflections, report.applied, report.dead_lettered) == (27, 27, 0)


def test_an_id_with_a_line_end_adds_no_line_to_the_report() -> None:
    made = facts()
    made.reflections.append((PARTITION, 27, "gone\nevery promise was kept"))
    (violation,) = made.judge().violations
    assert "gone every promise was kept" in violation
    assert "\n" not in violation


def test_the_same_id_in_two_places_is_one_reflection() -> None:
    made = facts()
    made.reflections += [(0, 3, "r5"), (PARTITION, 30, "r6"), (PARTITION, 31, "new"), (0, 7, "new")]
    made.committed = 31
    report = made.judge()
    assert report.good
    assert (report.reflections, report.applied, report.pending) == (28, 27, 1)


def test_the_fates_add_up_to_the_reflections() -> None:
    made = facts()
    made.dead.append(letter(4, "r4"))
    made.reflections += [(PARTITION, 27, "gone"), (PARTITION, 40, "new")]
    made.committed = 40
    report = made.judge()
    assert report.reflections == report.applied + report.pending + report.dead_lettered + report.lost == 29


def test_an_unreadable_record_with_a_dead_letter_is_no_reflection_and_no_violation() -> None:
    made = facts()
    made.undecodable.append((PARTITION, 27))
    made.dead.append(letter(27))
    made.committed = 28
    report = made.judge()
    assert report.good
    assert (report.reflections, report.dead_lettered) == (27, 0)


def test_an_unreadable_record_that_was_passed_without_a_dead_letter_is_a_violation() -> None:
    made = facts()
    made.undecodable.append((PARTITION, 27))
    made.committed = 28
    only(made.judge(), "unread", f"reflections[{PARTITION}]@27")


def test_an_unreadable_record_that_is_still_to_be_read_is_not_judged() -> None:
    made = facts()
    made.undecodable.append((PARTITION, 27))
    made.committed = 27
    assert made.judge().good


def test_a_readable_record_buried_without_its_id_is_found_by_its_place() -> None:
    made = facts()
    made.reflections.append((PARTITION, 27, "r27"))
    made.dead.append(letter(27))
    report = made.judge()
    assert report.good
    assert report.dead_lettered == 1


def test_a_member_of_which_no_copy_got_through_must_be_a_dead_letter() -> None:
    made = facts()
    seen = made.updates[0][1].result.seen
    failed = (seen[0].model_copy(update={"ok": False}), *seen[1:])
    made.spoil_update(1, seen=failed)
    report = made.judge()
    assert report.lost == 1
    only(report, "lost", "r0", "no copy")
    made.dead.append(letter(0, "r0"))
    assert made.judge().good


# ---- batches


def test_one_id_in_two_batches_is_double() -> None:
    made = facts()
    members = (Member(offset=4, reflection_id="r4"), *made.batch(2).members[1:])
    made.batches[1] = (4, manifest(2, members))
    made.updates[1] = (2, update_of(made.batches[1][1], 4))
    report = made.judge()
    assert report.double == 1
    assert any("double" in one and "r4" in one and "batch 1" in one for one in report.violations)


def test_one_id_twice_in_a_batch_is_double() -> None:
    made = facts()
    members = (*made.batch(3).members, Member(offset=30, reflection_id="r26"))
    made.batches[2] = (6, manifest(3, members))
    report = made.judge()
    assert report.double == 1


def test_a_gap_in_the_batch_sequences_is_a_violation() -> None:
    made = facts()
    del made.batches[1], made.updates[1]
    report = made.judge()
    assert any("batch sequence" in one and "batch 3" in one for one in report.violations)
    assert report.lost == 9
    assert any("has no manifest" in one for one in report.violations)


def test_a_batch_sequence_given_twice_is_a_violation() -> None:
    made = facts()
    again = manifest(3, [Member(offset=27, reflection_id="r27")])
    made.reflections.append((PARTITION, 27, "r27"))
    made.batches.append((8, again))
    assert any("batch sequence" in one and "@8" in one for one in made.judge().violations)


def overlapping() -> Facts:
    """Return two batches on version 1, and the versions they make."""
    made = facts()
    for sequence, base in ((1, 0), (2, 1), (3, 1)):
        bounded = {"base_version": base, "base_sequence": base, "max_inflight_batches": 2}
        made.spoil_batch(sequence, **bounded)
        made.spoil_version(sequence, base_version=base, staleness=sequence - 1 - base)
    made.snapshots = [made.history[-1][1].model_copy(update={"history_offset": made.history[-1][0]})]
    return made


def test_batches_that_overlap_within_their_bound_are_clean() -> None:
    assert overlapping().judge().good


@each_row("limit", [1, 2])
@each_row("base", [-1, 0, 3])
def test_a_batch_staler_than_its_bound_or_made_on_its_own_future_is_a_violation(
    limit: int, base: int
) -> None:
    made = overlapping()
    made.spoil_batch(3, base_sequence=base, max_inflight_batches=limit)
    assert any("staleness" in one and "batches[2]@6" in one for one in made.judge().violations)


def test_a_base_version_that_does_not_contain_what_the_manifest_says_is_a_violation() -> None:
    made = overlapping()
    made.spoil_batch(3, base_version=2)
    made.spoil_version(3, base_version=2)
    made.snapshots.clear()
    only(made.judge(), "base", "version 3", "contains batch 2 and not 1")


@pytest.mark.parametrize("claim", [{"staleness": 0}, {"base_version": 2}])
def test_a_version_that_hides_how_stale_it_is_is_a_violation(claim: dict[str, int]) -> None:
    made = overlapping()
    made.spoil_version(3, **claim)
    made.snapshots.clear()
    only(made.judge(), "base", "claims to be")


def test_a_foreign_batch_id_is_a_violation() -> None:
    made = facts()
    made.spoil_batch(2, batch_id="b-other")
    assert any("batch id" in one and "b-other" in one for one in made.judge().violations)


@each_row(
    ("copies", "widths", "words"),
    [(4, (3, 1), "cannot be dealt"), (0, (3, 1), "cannot be dealt"), (2, (), "cannot be dealt")],
)
def test_groups_that_would_repeat_a_reflection_are_a_violation(
    copies: int, widths: tuple[int, ...], words: str
) -> None:
    made = facts()
    made.spoil_batch(2, copies=copies, widths=widths)
    only(made.judge(), "groups", words)


@pytest.mark.parametrize(
    ("deal", "words"),
    [
        (((0, 1, 2, 3), (0, 1)), "unbalanced"),
        (((0, 0, 1), (1, 2, 2)), "two copies of one reflection"),
        (((0, 1, 2), (0, 1)), "not in exactly 2 groups"),
    ],
)
def test_a_deal_that_breaks_the_rules_is_seen(
    monkeypatch: pytest.MonkeyPatch, deal: tuple[tuple[int, ...], ...], words: str
) -> None:
    def broken(batch: Batch) -> tuple[tuple[Member, ...], ...]:
        return tuple(tuple(batch.members[i] for i in group) for group in deal)

    monkeypatch.setattr("combee.core.log.ledger.batches.deal_batch", broken)
    made = facts(batches=1, size=4)
    assert any("groups" in one and words in one for one in made.judge().violations)


# ---- updates


@each_row(
    ("change", "words"),
    [
        (lambda seen: seen[1:], "did not see 1"),
        (lambda seen: (*seen, seen[0]), "twice"),
        (lambda seen: (*seen, Seen(reflection_id="r99", offset=99)), "r99"),
    ],
)
def test_an_update_must_have_seen_each_member_once(change: object, words: str) -> None:
    made = facts()
    assert callable(change)
    made.spoil_update(2, seen=change(made.updates[1][1].result.seen))
    only(made.judge(), "seen", words, "batch 2")


def without(update: Update, *left_out: int, stragglers: bool = True) -> Update:
    """Return an update whose root did not wait for some of its children."""
    result = update.result.model_copy(update={"left_out": left_out})
    return changed(update, stragglers=stragglers).model_copy(update={"result": result})


def test_groups_may_be_left_out_where_the_plan_allows_it() -> None:
    found = facts()
    found.updates = [(at, without(update, 1)) for at, update in found.updates]
    assert found.judge().violations == ()


@each_row(
    ("left_out", "stragglers", "words"),
    [
        ((1,), False, "its plan does not allow"),
        ((3,), True, "do not exist"),
        ((1, 1), True, "do not exist"),
    ],
)
def test_what_is_left_out_must_be_there_and_allowed(
    left_out: tuple[int, ...],
    stragglers: bool,  # noqa: FBT001
    words: str,
) -> None:
    found = facts()
    found.updates = [(at, without(update, *left_out, stragglers=stragglers)) for at, update in found.updates]
    violations = found.judge().violations
    assert violations
    assert all(one.startswith("left out: ") and words in one for one in violations)


def test_a_failed_update_may_have_seen_less() -> None:
    made = facts()
    made.spoil_update(2, seen=(), operations=(), status="failed")
    assert made.judge().good


def test_only_the_first_update_of_a_batch_is_judged() -> None:
    made = facts()
    made.updates.append((9, made.updates[0][1].model_copy(update={"seen": ()})))
    assert made.judge().good


# ---- versions


def test_a_version_that_does_not_rise_by_one_is_a_violation() -> None:
    made = facts()
    made.spoil_version(3, version=4)
    made.snapshots = []
    only(made.judge(), "version 4", "follows version 2")


def test_a_version_written_twice_is_a_violation() -> None:
    made = facts()
    made.history.append((9, made.history[-1][1]))
    found = made.judge().violations
    assert any("follows version 3" in one for one in found)
    assert any("publishes batch 3 again" in one for one in found)


def test_a_version_that_skips_a_batch_is_a_violation() -> None:
    made = facts()
    base = {"base_version": 1, "base_sequence": 1}
    made.spoil_batch(3, **base, max_inflight_batches=2)
    skipped = changed(made.history[2][1], version=2, **base)
    made.history = [made.history[0], (4, skipped)]
    made.snapshots = []
    only(made.judge(), "publishes batch 3 right after batch 1")


def test_a_command_does_not_move_the_batch_sequence() -> None:
    made = facts()
    edit = made.history[-1][1].model_copy(update={"version": 4, "origin": "edit", "reflections": 0})
    made.history.append((9, edit))
    made.snapshots = [edit.model_copy(update={"history_offset": 9})]
    assert made.judge().good
    made.spoil_version(4, batch_sequence=7)
    made.snapshots = []
    only(made.judge(), "claims batch 7")


# ---- snapshots


def test_a_snapshot_that_stayed_behind_history_is_a_violation() -> None:
    made = facts()
    offset, second = made.history[1]
    made.snapshots = [second.model_copy(update={"history_offset": offset})]
    only(made.judge(), "snapshot", "version 2", "ends at version 3")


def test_a_snapshot_may_be_older_than_what_was_written_while_it_was_read() -> None:
    made = facts()
    offset, second = made.history[1]
    made.snapshots = [second.model_copy(update={"history_offset": offset})]
    made.settled = offset + 1
    assert made.judge().good


def test_a_deleted_playbook_is_judged_by_what_is_left() -> None:
    made = facts()
    made.snapshots.append(None)
    report = made.judge()
    assert report.good
    assert report.applied == 27


# ---- the horizon


def test_what_expired_is_not_judged_and_the_horizon_says_so() -> None:
    made = facts()
    made.batches, made.updates, made.history = made.batches[1:], made.updates[1:], made.history[1:]
    made.reflections = made.reflections[9:]
    made.beginnings = {"batches": 4, "updates": 2, "history": 4, "reflections": 9}
    report = made.judge()
    assert report.good
    assert report.reflections == 18
    assert "reflections (1 partitions)" in report.horizon.note
    assert report.horizon.model_dump(mode="json") == {
        "first_retained": {
            topic: {str(PARTITION): made.beginnings.get(topic, 0)}
            for topic in ("reflections", "batches", "updates", "history", "dead-letters")
        },
        "note": report.horizon.note,
    }


def test_members_that_expired_from_reflections_are_not_missed() -> None:
    made = facts()
    made.reflections = made.reflections[5:]
    made.beginnings = {"reflections": 5}
    report = made.judge()
    assert report.good
    assert report.reflections == 22


def test_a_gap_after_the_horizon_is_still_a_violation() -> None:
    made = facts()
    made.beginnings = {"batches": 1}
    del made.batches[1], made.updates[1]
    assert any("batch sequence" in one for one in made.judge().violations)


def test_many_violations_of_a_kind_are_counted_not_listed() -> None:
    made = Facts(reflections=[(PARTITION, at, f"r{at}") for at in range(100)])
    report = made.judge()
    assert report.lost == 100
    assert len(report.violations) == 21
    assert report.violations[-1] == "lost: and 80 more"
