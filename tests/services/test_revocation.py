"""A revocation against an independent recomputation from the topics, over random histories."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from combee.core.names import identity
from combee.core.playbook.lineage import evidence
from combee_schemas import topics
from combee_schemas.command import Command
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Known, Operation, OperationKind, Seen, Update
from support import ledger
from support.deployment import Deployment
from support.flat import flat
from support.ledger import NAME, dead_letters, outgoing, versions
from support.planned import PlanningDeployment

SECTION = "OTHERS"
NEW = "new: "
"""Begins the names of entries that no version has given an id."""
STEPS = 12


def words(*of: object) -> str:
    """Return a lesson that is like no other."""
    letters = sha256(repr(of).encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))
    return f"{letters[:12]} {letters[12:24]}"


@dataclass(slots=True)
class History:
    """What is sent: updates and commands, drawn at random; entries are named by guess, so that some do not exist."""

    rng: Random
    sent: list[Update | Command] = field(default_factory=list)
    added: int = 0
    reflections: int = 0
    sequence: int = 0

    def batch(self) -> None:
        self.sequence += 1
        first = self.reflections
        self.reflections += self.rng.randrange(2, 6)
        ids = [f"r-{n}" for n in range(first, self.reflections)]
        there = [f"misc-{n:05d}" for n in range(1, self.added + 1)]
        self.rng.shuffle(there)
        operations = [self._operation(n, ids, there) for n in range(self.rng.randrange(1, 4))]
        claims = [Known(entry_id=there.pop(), evidence=self._some(ids))] if len(there) > 1 else []
        self.added += sum(operation.kind == OperationKind.ADD for operation in operations)
        shown = self.sequence - 1
        seen = [
            Seen(reflection_id=each, offset=int(each[2:]), tags=self._tags(), shown_version=shown)
            for each in ids
        ]
        taught = [operation for operation in operations if operation.evidence]
        self._send(len(ids), operations=taught, known=claims, seen=seen)
        if unsupported := [operation for operation in operations if not operation.evidence]:
            self.sequence += 1
            self._send(0, reason="consolidate", operations=unsupported)

    def _send(self, reflections: int, reason: str = "size", **result: object) -> None:
        plan = {
            "batch_id": identity.batch_id(NAME, self.sequence),
            "playbook": NAME,
            "sequence": self.sequence,
            "widths": (1,),
            "base_version": 0,
            "reflections": reflections,
            "through_offset": self.reflections,
            "manifest_offset": self.sequence,
            "reason": reason,
        }
        self.sent.append(flat(Update, plan=plan, node_id="n", status="ok", **result))

    def _operation(self, n: int, ids: list[str], there: list[str]) -> Operation:
        kind = self.rng.choice(list(OperationKind))
        wanted = {OperationKind.ADD: 0, OperationKind.MERGE: 2}.get(kind, 1)
        if len(there) < wanted:
            kind, wanted = OperationKind.ADD, 0
        return Operation(
            kind=kind,
            section=SECTION,
            content="" if kind == OperationKind.REMOVE else words(self.sequence, n),
            entry_ids=tuple(there.pop() for _ in range(wanted)),
            evidence=() if kind == OperationKind.MERGE and self.rng.random() < 0.3 else self._some(ids),
        )

    def _some(self, ids: list[str]) -> tuple[str, ...]:
        return tuple(self.rng.sample(ids, self.rng.randrange(1, 3)))

    def _tags(self) -> tuple[BulletTag, ...]:
        if not self.added:
            return ()
        tag = self.rng.choice(("helpful", "harmful"))
        return (BulletTag(id=f"misc-{self.rng.randrange(1, self.added + 1):05d}", tag=tag),)

    def command(self, kind: str, **fields: object) -> None:
        body = {"command_id": f"c-{len(self.sent)}", "playbook": NAME, "kind": kind, **fields}
        self.sent.append(Command.model_validate(body))

    def revocation(self, share: float) -> None:
        ids = tuple(f"r-{n}" for n in range(self.reflections) if self.rng.random() < share)
        self.command("revoke", reflection_ids=ids)


def random_history(seed: int) -> History:
    history = History(Random(seed))
    history.batch()
    for step in range(STEPS):
        match history.rng.choice(["batch"] * 7 + ["rollback", "revoke"]):
            case "rollback":
                history.command("rollback", version=history.rng.randrange(1, step + 2))
            case "revoke":
                history.revocation(0.2)
            case _:
                history.batch()
    history.revocation(0.4)
    return history


# ---- the independent recomputation


@dataclass(slots=True)
class Line:
    """An entry as it is recomputed."""

    content: str
    evidence: set[str]
    helpful: int = 0
    harmful: int = 0
    since: int = field(default=0, compare=False)
    """The version since which it says this: tags of who read an earlier one are about something else."""

    def copy(self) -> "Line":
        return Line(self.content, set(self.evidence), self.helpful, self.harmful, self.since)


Lines = dict[str, Line]


def in_order(lines: Iterable[Line]) -> list[Line]:
    return sorted(lines, key=lambda line: (line.content, sorted(line.evidence)))


@dataclass(frozen=True, slots=True)
class Gone:
    """What is revoked, and what is asked about again: by sequence and id."""

    ids: frozenset[str]
    again: frozenset[tuple[int, str]]

    def is_mixed(self, operation: Operation) -> bool:
        """Return whether an operation is dropped, so that its other reflections are asked about again."""
        rests = set(operation.evidence) - self.ids
        return bool(rests) and len(rests) < len(operation.evidence) and operation.kind != OperationKind.REMOVE

    def drops(self, sequence: int, operation: Operation) -> bool:
        return self.is_mixed(operation) and self.again.issuperset(
            (sequence, each) for each in set(operation.evidence) - self.ids
        )


def recomputed(history: list[Playbook], updates: Mapping[int, Update], gone: Gone) -> Lines:
    """Return what the last of these versions says without what is ``gone``, from all that was recorded."""
    lines: dict[int, Lines] = {0: {}}
    says: dict[int, dict[str, str]] = {0: {}}
    for version in history:
        says[version.version] = {entry.id: entry.content for entry in version.entries}
        start = evidence.began_with(version)[1]
        book = {entry_id: line.copy() for entry_id, line in lines[start].items()}
        if version.origin == "batch":
            update = updates[version.batch_sequence]
            for entry_id, line in book.items():
                # Until now agents have read other words.
                if says[start].get(entry_id, line.content) != line.content:
                    line.since = version.version
            apply(book, update, says[start], says[version.version], gone)
            for line in book.values():
                line.since = line.since or version.version
            book = under_ids_of(says[version.version], book)
        else:
            book = under_ids_of(says[version.version], book)
            for entry_id in book.keys() & says[version.version].keys():
                if book[entry_id].content == says[version.version][entry_id]:
                    book[entry_id].since = created(version)[entry_id]
        lines[version.version] = book
    return lines[history[-1].version]


def created(version: Playbook) -> dict[str, int]:
    """Return by entry the version since which it says its words, as recorded."""
    return {entry.id: entry.created_version for entry in version.entries}


def under_ids_of(says: Mapping[str, str], book: Lines) -> Lines:
    """Return the lines under the ids under which a version says the same; what else has such an id gives way."""
    ids = {content: entry_id for entry_id, content in says.items()}
    other = {entry_id: line.content for entry_id, line in book.items() if says.get(entry_id) != line.content}
    moved = {
        entry_id: ids[content]
        for entry_id, content in other.items()
        if content in ids and book.get(ids[content], Line("", set())).content != content
    }
    moved |= {
        entry_id: f"{NEW}{other[entry_id]}"
        for entry_id in moved.values()
        if entry_id in other and entry_id not in moved
    }
    return {moved.get(entry_id, entry_id): line for entry_id, line in book.items()}


def apply(
    book: Lines,
    update: Update,
    before: Mapping[str, str],
    after: Mapping[str, str],
    lost: Gone,
) -> None:
    gone, about = lost.ids, dict[str, str]()
    for seen in update.result.seen:
        for tag in seen.tags if seen.reflection_id not in gone else ():
            if tag.id in book and book[tag.id].since <= (seen.shown_version or 0):
                setattr(book[tag.id], tag.tag, getattr(book[tag.id], tag.tag) + 1)
    for claim in update.result.known:
        asked = {(update.plan.sequence, each) for each in set(claim.evidence) - gone}
        if claim.entry_id in before and claim.entry_id not in book and not asked <= lost.again:
            says = before[claim.entry_id]
            # One that says it already has the support of both.
            about[claim.entry_id] = next(
                (each for each in book if book[each].content == says), claim.entry_id
            )
            book.setdefault(about[claim.entry_id], Line(says, set()))
    for claim in update.result.known:
        entry_id = about.get(claim.entry_id, claim.entry_id)
        if entry_id in book:
            book[entry_id].evidence |= set(claim.evidence) - gone
    start = {entry_id: line.content for entry_id, line in book.items()}
    other = {entry_id for entry_id, content in before.items() if start.get(entry_id) != content}
    for operation in update.result.operations:
        rests = set(operation.evidence) - gone
        is_void = operation.kind == OperationKind.MERGE and not other.isdisjoint(operation.entry_ids)
        if (rests or not (operation.evidence or is_void)) and not lost.drops(update.plan.sequence, operation):
            operate(book, operation, rests, before, after)


def operate(
    book: Lines, operation: Operation, rests: set[str], before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    if operation.kind == OperationKind.ADD:
        (entry_id,) = (each for each, content in after.items() if content == operation.content)
        book[entry_id] = Line(operation.content, rests)
    elif operation.kind == OperationKind.REMOVE:
        # Who removed other words has not removed these.
        if not is_other(book, operation.entry_ids[0], before):
            book.pop(operation.entry_ids[0], None)
    else:
        reword(book, operation, rests, before)


def is_other(book: Lines, entry_id: str, before: Mapping[str, str]) -> bool:
    """Return whether an entry says something else than when it was recorded."""
    return entry_id in book and book[entry_id].content != before.get(entry_id, book[entry_id].content)


def reword(book: Lines, operation: Operation, rests: set[str], before: Mapping[str, str]) -> None:
    there = [each for each in operation.entry_ids if each in book]
    if operation.kind == OperationKind.UPDATE and there and is_other(book, operation.entry_ids[0], before):
        # Who rewrote other words has not rewritten these: both stay.
        book[f"{NEW}{operation.content}"] = Line(operation.content, rests)
        return
    if not there:
        recorded = [each for each in operation.entry_ids if each in before]
        if recorded and rests:
            book[recorded[0]] = Line(operation.content, rests)
        return
    kept = book[there[0]]
    for twin in (book.pop(each) for each in there[1:]):
        kept.evidence |= twin.evidence
        kept.helpful += twin.helpful
        kept.harmful += twin.harmful
    kept.content, kept.since = operation.content, 0
    kept.evidence |= rests


async def published(history: History) -> Deployment:
    async with PlanningDeployment().running(["publish"]) as deployment:
        await deployment.log.produce(*map(outgoing, history.sent))
        await deployment.until(lambda: not [at for at in ledger.behind(deployment.log) if at[0] == "publish"])
    assert dead_letters(deployment.log) == []
    return deployment


@settings(max_examples=60, deadline=None)
@example(1631)  # a version in which two entries say the same
@example(736715)  # a claim about an entry that is gone, while another says the same
@example(2855360829)  # words of revoked and other reflections that came back under another id
@example(5045)  # words of revoked and other reflections under the id of no version
@example(48)  # words under the id of others, which change there
@example(97)  # two entries whose id others have, one after the other
@given(st.integers(0, 2**32))
def test_a_revocation_leaves_what_an_independent_recomputation_from_the_topics_leaves(seed: int) -> None:
    log = asyncio.run(published(random_history(seed))).log
    *before, last = versions(log)
    updates = {update.plan.sequence: update for update in ledger.messages(log, topics.UPDATES, Update)}
    gone = Gone(
        ids=frozenset(each for version in (*before, last) for each in version.revoked),
        again=frozenset((asked.manifest_offset, f"r-{asked.offset}") for asked in last.again),
    )
    expected = recomputed(before, updates, gone)
    found = (Line(entry.content, set(entry.evidence), entry.helpful, entry.harmful) for entry in last.entries)
    assert in_order(found) == in_order(expected.values())
    assert all(entry.evidence_count == len(entry.evidence) for entry in last.entries)
    mixed = {
        operation.content
        for update in updates.values()
        for operation in update.result.operations
        if gone.is_mixed(operation)
    }
    claims = (claim for update in updates.values() for claim in update.result.known)
    borne_out = {one for claim in claims for one in claim.evidence} - gone.ids
    taught = {line.content for line in expected.values() if borne_out.isdisjoint(line.evidence)}
    assert mixed.isdisjoint(taught), "words that revoked reflections taught"
