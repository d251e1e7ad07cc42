"""A picture of one small batch, in which a call failed and said a secret."""

from combee.core.log.live.picture import Picture
from combee.core.names import identity
from combee_schemas.batch import Batch, Member
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.plan import Plan
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Partial
from support.flat import flat

BATCH = identity.batch_id("a", 1)
MANIFEST = flat(
    Batch, batch_id=BATCH, playbook="a", sequence=1, seed=1, copies=2, widths=(3, 1), base_version=0, reason="size",
    members=tuple(Member(offset=n, reflection_id=f"r{n}") for n in range(4)), through_offset=3, batch_size=4,
)  # fmt: skip
PLAN = Plan(batch_id=BATCH, playbook="a", sequence=1, widths=(3, 1), base_version=0, reflections=4)
FAILED = flat(
    Partial, plan=PLAN, node_id="n", parent_id="p", level=0, index=1, status="failed",
    reason="password=hunter2hunter2"
)  # fmt: skip


def picture(*messages: Batch | Partial | Playbook | DeadLetter) -> Picture:
    seen = Picture(batch_size=4)
    for message in messages:
        seen.take(message, 1_000)
    return seen
