"""What becomes of a batch without a version for too long, whatever happens while another one is written."""

from types import SimpleNamespace
from typing import cast

import pytest

from combee.process.settings.batch import BatchSettings
from combee.shuffle.cutting import Cutter
from combee.shuffle.manifests import InFlight, Manifests
from combee.shuffle.overdue import Overdue
from combee.shuffle.partition import ShuffleState
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan
from support.clock import ManualClock

NAME = "support/refunds"
TIMEOUT_S = 300.0


class Written:
    """A cutter that takes note of what it is to write; meanwhile versions come."""

    def __init__(self, manifests: Manifests) -> None:
        self.again: list[int] = []
        self.given_up: list[int] = []
        self.publish_through = 0
        self._manifests = manifests

    async def emit_again(self, _state: ShuffleState, in_flight: InFlight) -> None:
        self.again.append(in_flight.batch.plan.sequence)
        self._manifests.published(NAME, self.publish_through)

    async def give_up(self, _state: ShuffleState, in_flight: InFlight, _reason: str) -> None:
        self.given_up.append(in_flight.batch.plan.sequence)


def batch(sequence: int) -> Batch:
    plan = Plan(
        batch_id=f"b-{sequence}", playbook=NAME, sequence=sequence, widths=(1,), base_version=0, reflections=1
    )
    return Batch(plan=plan, seed=1, members=(), copies=1)


@pytest.fixture
def manifests() -> Manifests:
    manifests = Manifests(horizon=100)
    for sequence in (1, 2, 3):
        manifests.add(batch(sequence), sequence, 0.0)
    return manifests


@pytest.fixture
def cutter(manifests: Manifests) -> Written:
    return Written(manifests)


async def look_after(manifests: Manifests, cutter: Written, retries: int = 3) -> None:
    clock = ManualClock()
    overdue = Overdue(clock, BatchSettings(batch_timeout_s=TIMEOUT_S), cast("Cutter", cutter), retries)
    clock.advance(TIMEOUT_S)
    overdue.model_heartbeat()
    state = cast("ShuffleState", SimpleNamespace(manifests=manifests))
    await overdue.look_after(state, TIMEOUT_S)


async def test_what_got_its_version_while_another_was_emitted_again_is_left_alone(
    manifests: Manifests, cutter: Written
) -> None:
    cutter.publish_through = 2
    await look_after(manifests, cutter)
    assert cutter.again == [1, 3]


async def test_no_batch_is_left_when_all_versions_came_meanwhile(
    manifests: Manifests, cutter: Written
) -> None:
    cutter.publish_through = 3
    await look_after(manifests, cutter)
    assert cutter.again == [1]


async def test_only_the_first_in_line_is_given_up_and_only_for_time_in_which_the_model_answered(
    manifests: Manifests, cutter: Written
) -> None:
    await look_after(manifests, cutter, retries=0)
    assert (cutter.given_up, cutter.again) == ([], [1, 2, 3]), "of the time between two looks a minute counts"
    for _ in range(4):
        await look_after(manifests, cutter, retries=0)
    assert cutter.given_up == [1]
