"""The scan of one batch in memory, with the check at its root."""

from collections.abc import Sequence
from typing import Any

from combee.core.batching.plan import Base, deal_batch, plan_batch
from combee.core.playbook.versions import empty
from combee.scan.aggregate import Aggregator
from combee.scan.in_memory import InMemoryScan
from combee_schemas.batch import Member
from combee_schemas.plan import PlanSettings, Trust
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import GroupMember, NodeResult
from support.models import Answer, ModelClient, ScriptedModel

EMPTY = empty("p")


def reflections(*lessons: str, first: int = 0, **fields: Any) -> list[Reflection]:
    """Return reflections r-0, r-1 … with these insights, or from ``first`` on."""
    return [
        Reflection(reflection_id=f"r-{n}", playbook="p", key_insight=lesson, **fields)
        for n, lesson in enumerate(lessons, first)
    ]


async def learned(
    model: ScriptedModel | Answer,
    given: Sequence[Reflection],
    base: Playbook = EMPTY,
    *,
    groups: int = 4,
    carry: bool = True,
    trust: Trust = "lab",
) -> NodeResult:
    """Return the update of one batch of these reflections."""
    model = model if isinstance(model, ScriptedModel) else ScriptedModel(model)
    batch = plan_batch(
        "p",
        1,
        [Member(offset=n, reflection_id=one.reflection_id) for n, one in enumerate(given)],
        [1_000 for _ in given],
        settings=PlanSettings(
            copies=1,
            groups=groups,
            fan_in=8,
            max_levels=3,
            group_bytes=1 << 20,
            trust=trust,
            colluders=3 if trust == "public" else 0,
        ),
        base=Base(version=base.version, sequence=0),
        reason="size",
        batch_size=len(given),
        through_offset=len(given) - 1,
    )
    dealt = [
        [GroupMember(offset=member.offset, reflection=given[member.offset]) for member in members]
        for members in deal_batch(batch)
    ]
    aggregator = Aggregator(ModelClient(model), settings=PlanSettings(carry=carry))
    return (await InMemoryScan(aggregator, base, batch.plan, dealt).update()).result


def contents(result: NodeResult) -> list[str]:
    """Return what the supported operations say."""
    return sorted(operation.content for operation in result.operations if operation.evidence)


def covered(result: NodeResult) -> dict[str, str]:
    """Return, by reflection, how its lesson was found in the result."""
    return {seen.reflection_id: seen.covered for seen in result.seen}
