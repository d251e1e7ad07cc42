"""The least that a batch can be: one coroutine per group and one to combine, in one process, without a log."""

import asyncio
import time
from collections.abc import Sequence

from combee.adapters.ports import LanguageModel
from combee.core.batching import plan
from combee.core.batching.limits import PRODUCT
from combee.core.methods import ace
from combee.core.playbook import operations
from combee.core.playbook.versions import empty
from combee_schemas.batch import Member
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation

SIZE_BYTES = 200
"""About what one of these reflections has on the wire: far from any limit."""


async def in_process(model: LanguageModel, reflections: Sequence[Reflection]) -> float:
    """Return the seconds that a two-level tree of these takes."""
    began = time.monotonic()
    name = reflections[0].playbook
    members = [
        Member(offset=n, reflection_id=reflection.reflection_id) for n, reflection in enumerate(reflections)
    ]
    batch = plan.plan_batch(
        name,
        1,
        members,
        [SIZE_BYTES] * len(members),
        settings=PRODUCT,
        base=plan.Base(version=0, sequence=0),
        reason="size",
        batch_size=len(members),
        through_offset=len(members) - 1,
    )
    base = empty(name)

    async def propose(group: Sequence[Member]) -> list[Operation]:
        chosen = [reflections[member.offset] for member in group]
        reply = await model.ask(ace.aggregate_prompt(base, chosen))
        sources = [(reflection.reflection_id,) for reflection in chosen]
        body = operations.in_words(reply.body, [reflection.key_insight for reflection in chosen])
        return list(operations.read_operations(body, sources).operations)

    proposals = await asyncio.gather(*(propose(group) for group in plan.deal_batch(batch)))
    await model.ask(ace.combine_prompt(base, [operation for proposal in proposals for operation in proposal]))
    return time.monotonic() - began
