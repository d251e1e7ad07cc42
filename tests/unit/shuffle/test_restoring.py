"""What restoring learns from manifests and snapshots."""

from combee.adapters.memory import MemoryLog
from combee.shuffle.restoring import read_manifests
from combee_schemas.playbook import Playbook
from support.clock import ManualClock

NAME = "support/refunds"


async def test_a_snapshot_covers_reflections_whose_manifests_lie_beyond_the_horizon() -> None:
    snapshot = Playbook(name=NAME, version=9, batch_sequence=9, through_offset=360)
    manifests = await read_manifests(MemoryLog(ManualClock(), partitions=1), 0, 1, [snapshot], 0.0)

    assert manifests.covers(NAME, 360)
    assert not manifests.covers(NAME, 361)
    assert manifests.sequences[NAME] == 9
