"""What becomes of a batch without a version for too long, whatever happens while another one is written."""

from types import SimpleNamespace
from typing import cast

import pytest

from combee.process.settings.batch import BatchSettings
from combee.shuffle.cutting import Cutter
from combee.shuffle.overdue import Overdue
from combee.shuffle.partition import InFlight, Manifests, ShuffleState
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan
from support.clock import ManualClock

NAME = "support/refunds"
TIMEOUT_S = 300.0


class Noted(Overdue):
    """Takes note of what it is to write; meanwhile versions come."""

    def __init__(self, manifests: Manifests, retries: int) -> None:
        rules = SimpleNamespace(settings=BatchSettings(batch_timeout_s=TIMEOUT_S))
        self.clock = ManualClock()
        super().__init__(cast("Cutter", SimpleNamespace(clock=self.clock, rules=rules)), retries)
        self.again: list[int] = []
        self.given_up: list[int] = []
        self.publish_through = 0
        self._manifests = manifests

    async def _write_again(self, _state: ShuffleState, in_flight: InFlight) -> None:
        self.again.append(in_flight.batch.plan.sequence)
        self._manifests.published(NAME, self.publish_through)

    async def _give_up(self, _state: ShuffleState, in_flight: InFlight, _reason: str) -> None:
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


async def look_after(overdue: Noted, manifests: Manifests) -> None:
    overdue.clock.advance(TIMEOUT_S)
    overdue.model_heartbeat()
    state = cast("ShuffleState", SimpleNamespace(manifests=manifests))
    await overdue.look_after(state, TIMEOUT_S)


async def test_what_got_its_version_while_another_was_written_again_is_left_alone(
    manifests: Manifests,
) -> None:
    overdue = Noted(manifests, retries=3)
    overdue.publish_through = 2
    await look_after(overdue, manifests)
    assert overdue.again == [1, 3]


async def test_no_batch_is_left_when_all_versions_came_meanwhile(manifests: Manifests) -> None:
    overdue = Noted(manifests, retries=3)
    overdue.publish_through = 3
    await look_after(overdue, manifests)
    assert overdue.again == [1]


async def test_only_the_first_in_line_is_given_up_and_only_for_time_in_which_the_model_answered(
    manifests: Manifests,
) -> None:
    overdue = Noted(manifests, retries=0)
    await look_after(overdue, manifests)
    assert (overdue.given_up, overdue.again) == ([], [1, 2, 3]), (
        "of the time between two looks a minute counts"
    )
    for _ in range(4):
        await look_after(overdue, manifests)
    assert overdue.given_up == [1]
