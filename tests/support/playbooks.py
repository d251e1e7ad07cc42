"""A playbook of three entries, and short ways to apply operations, updates and commands to it."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from combee.core.playbook import executing, versions
from combee.core.playbook.draft import apply_operations, finish
from combee.core.playbook.versions import empty
from combee_schemas.base import Usage
from combee_schemas.command import Command
from combee_schemas.plan import CloseReason, Plan, PlanSettings
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.scan import Known, NodeResult, Operation, OperationKind, Seen, Update
from support.flat import flat

ADD, UPDATE, MERGE, REMOVE = (
    OperationKind.ADD,
    OperationKind.UPDATE,
    OperationKind.MERGE,
    OperationKind.REMOVE,
)
FORMULAS = ACE_SECTIONS[1]
PLENTY = 10**9


def entry(entry_id: str, content: str, **fields: Any) -> Entry:
    return Entry.model_validate({"id": entry_id, "section": FORMULAS, "content": content, **fields})


def op(
    kind: OperationKind, content: str = "", *ids: str, evidence: tuple[str, ...] = (), **fields: Any
) -> Operation:
    return Operation(kind=kind, section=FORMULAS, content=content, entry_ids=ids, evidence=evidence, **fields)


def seen(reflection_id: str, *tags: tuple[str, str], ok: bool = True) -> Seen:
    return Seen.model_validate(
        {
            "reflection_id": reflection_id,
            "offset": 0,
            "ok": ok,
            "tags": [{"id": i, "tag": t} for i, t in tags],
            "shown_version": 1 if tags else None,
        }
    )


BASE = empty("p").model_copy(
    update={
        "version": 4,
        "next_id": 8,
        "entries": (
            entry("calc-00001", "one", helpful=2, evidence=("r-1",), evidence_count=1, updated_version=2),
            entry(
                "calc-00002", "two", harmful=1, evidence=("r-2", "r-3"), evidence_count=30, updated_version=3
            ),
            entry("calc-00007", "seven", helpful=5, evidence=("r-4",), evidence_count=1, updated_version=4),
        ),
    }
)


def applied(
    *operations: Operation,
    seen_: tuple[Seen, ...] = (),
    revoked: tuple[str, ...] = (),
    base: Playbook = BASE,
) -> Playbook:
    draft = apply_operations(base, operations, seen_, revoked=revoked)
    sections, entries = finish(base, draft, PLENTY)
    return base.model_copy(
        update={
            "entries": entries,
            "sections": sections,
            "changes": tuple(draft.changes),
            "next_id": draft.next_id,
        }
    )


def get(playbook: Playbook, entry_id: str) -> Entry:
    return {kept.id: kept for kept in playbook.entries}[entry_id]


def changes(playbook: Playbook) -> list[tuple[str, str]]:
    return [(change.kind, change.entry_id) for change in playbook.changes]


def an_update(*operations: Operation, status: str = "ok", seen_: tuple[Seen, ...] = ()) -> Update:
    plan = Plan(
        batch_id="b-5",
        playbook="p",
        sequence=5,
        widths=(6, 1),
        base_version=4,
        through_offset=500,
        reflections=40,
        closed_at_ms=77,
    )
    return flat(
        Update,
        plan=plan,
        manifest_offset=55,
        node_id="n",
        status=status,
        operations=operations,
        seen=seen_,
        usage=Usage(calls=7),
    )


def after_update(update: Update, current: Playbook = BASE) -> Playbook:
    return versions.after_update(current, update, budget_tokens=PLENTY, now_ms=99)


def update_of(
    current: Playbook,
    operations: Sequence[Operation],
    reflections: Sequence[Seen],
    reason: CloseReason = "size",
    known: Sequence[Known] = (),
    **settings: Any,
) -> Update:
    """Return what the next batch of a playbook made of these reflections; only proven sources count by default."""
    sequence = current.batch_sequence + 1
    plan = Plan(
        batch_id=f"b-{sequence}",
        playbook="p",
        sequence=sequence,
        settings=PlanSettings(**{"trust": "lab", **settings}),
        widths=(1,),
        base_version=current.version,
        through_offset=max((each.offset for each in reflections), default=current.through_offset),
        reflections=max(1, len(reflections)),
        reason=reason,
    )
    result = NodeResult(
        status="ok", operations=tuple(operations), seen=tuple(reflections), known=tuple(known)
    )
    return Update(plan=plan, node_id="n", result=result)


def learned(
    current: Playbook,
    operations: Sequence[Operation],
    reflections: Sequence[Seen],
    reason: CloseReason = "size",
    budget: int = PLENTY,
    **settings: Any,
) -> Playbook:
    """Return the version that such a batch makes."""
    made = update_of(current, operations, reflections, reason, **settings)
    return versions.after_update(current, made, budget_tokens=budget, now_ms=0)


def command(kind: str, **fields: Any) -> Command:
    return Command.model_validate({"command_id": "c-1", "playbook": "p", "kind": kind, **fields})


def after_command(given: Command, current: Playbook = BASE, target: Playbook | None = None) -> Playbook:
    return executing.after_command(current, given, 12, target=target, budget_tokens=PLENTY, now_ms=99)


REFLECTIONS = ["r-1", "r-2", "r-9", "r-10", "r-11"]
CONTENTS = [
    "one",
    "Two.",
    "new",
    "newer",
    "the news",
    "Wait 5 s",
    "Wait 6 s",
    "Please wait 5 s",
    "Do not wait 5 s",
    "",
]
operation_lists = st.lists(
    st.builds(
        lambda kind, content, ids, evidence: op(kind, content, *ids, evidence=evidence),
        st.sampled_from(list(OperationKind)),
        st.sampled_from(CONTENTS),
        st.lists(st.sampled_from([known.id for known in BASE.entries] + ["calc-00008", "gone"]), max_size=3),
        st.lists(st.sampled_from(REFLECTIONS), max_size=3, unique=True).map(tuple),
    ),
    max_size=8,
)
seen_lists = st.permutations(REFLECTIONS).map(
    lambda ids: tuple(
        seen(reflection_id, ("calc-00001", "helpful")).model_copy(update={"offset": n})
        for n, reflection_id in enumerate(ids)
    )
)
