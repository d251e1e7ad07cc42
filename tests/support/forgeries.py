"""Records of the scan that nobody planned, each beside an honest one: what a writer of its topic might invent."""

from collections.abc import Callable, Mapping
from typing import Any

from combee_schemas.batch import Cluster
from combee_schemas.plan import Plan
from combee_schemas.scan import (
    Echo,
    Group,
    GroupMember,
    Known,
    NodeResult,
    Operation,
    OperationKind,
    Partial,
    Planned,
    Seen,
    Update,
)
from support.ledger import reflection

STRANGER = "r-stranger"
INVENTED = "an invented lesson"
INVENTION = Operation(kind=OperationKind.ADD, section="OTHERS", content=INVENTED)

Forge = Callable[[Any], Planned]
"""From an honest record to a forged one."""


def _with_plan(**changes: object) -> Forge:
    def forge(honest: Planned) -> Planned:
        return honest.model_copy(update={"plan": honest.plan.model_copy(update=changes)})

    return forge


def _of_another_method(honest: Planned) -> Planned:
    plan: Plan = honest.plan
    settings = plan.settings.model_copy(update={"method": "gepa"})
    return honest.model_copy(update={"plan": plan.model_copy(update={"settings": settings})})


PLANS: Mapping[str, tuple[Forge, str]] = {
    "an offset where no manifest stands": (
        lambda honest: honest.model_copy(update={"manifest_offset": 10**9}),
        "was never cut",
    ),
    "an offset before the first": (
        lambda honest: honest.model_copy(update={"manifest_offset": -1}),
        "was never cut",
    ),
    "a hash of nothing": (_with_plan(sha256="0" * 64), "was cut otherwise"),
    "more reflections than were planned": (_with_plan(reflections=10_000), "was cut otherwise"),
    "reflections beyond its batch": (_with_plan(through_offset=10**6), "was cut otherwise"),
    "another base": (_with_plan(base_version=7), "was cut otherwise"),
    "a revocation that nobody asked for": (_with_plan(reason="revoke"), "was cut otherwise"),
    "another method": (_of_another_method, "was cut otherwise"),
}
"""What any record of the scan may lie about, with what is said of it."""


def _with_result(**changes: object) -> Forge:
    def forge(honest: Any) -> Planned:
        result: NodeResult = honest.result.model_copy(update=changes)
        forged: Planned = honest.model_copy(update={"result": result})
        return forged

    return forge


def _misplaced(honest: Any) -> Planned:
    seen = [
        reflection.model_copy(update={"offset": reflection.offset + 100}) for reflection in honest.result.seen
    ]
    return _with_result(seen=tuple(seen))(honest)


RESULTS: Mapping[str, tuple[Forge, str]] = {
    "evidence of a stranger": (
        _with_result(operations=(INVENTION.model_copy(update={"evidence": (STRANGER,)}),)),
        f"it rests on {STRANGER}",
    ),
    "a known entry that a stranger supports": (
        _with_result(known=(Known(entry_id="e", evidence=(STRANGER,)),)),
        f"it rests on {STRANGER}",
    ),
    "an echo of a stranger": (
        _with_result(echoes=(Echo(entry_id="e", evidence=(STRANGER,)),)),
        f"it rests on {STRANGER}",
    ),
    "a stranger that was seen": (
        _with_result(seen=(Seen(reflection_id=STRANGER, offset=0),)),
        f"it names {STRANGER}",
    ),
    "members at other places": (_misplaced, "it names r-"),
}
"""What a partial or an update may lie about."""


def _with_member(offset: int, reflection_id: str) -> Forge:
    stranger = GroupMember(offset=offset, reflection=reflection(0, reflection_id=reflection_id))
    return lambda honest: honest.model_copy(update={"members": (*honest.members, stranger)})


GROUPS: Mapping[str, tuple[Forge, str]] = {
    "a member that is a stranger": (_with_member(0, STRANGER), f"it names {STRANGER}"),
    "a member at another place": (_with_member(10**6, "r-0"), "it names r-0"),
    "clusters that nobody asked about": (
        lambda honest: honest.model_copy(update={"clusters": (Cluster(why="alike", entry_ids=("a", "b")),)}),
        "clusters that its manifest does not name",
    ),
}
"""What a group may lie about."""

FORGERIES: Mapping[type[Planned], Mapping[str, tuple[Forge, str]]] = {
    Group: {**PLANS, **GROUPS},
    Partial: {
        "a foreign node": (
            lambda honest: honest.model_copy(update={"node_id": "n-other"}),
            "a foreign node id",
        ),
        **PLANS,
        **RESULTS,
    },
    Update: {**PLANS, **RESULTS},
}
