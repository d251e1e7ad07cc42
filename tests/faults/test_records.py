"""Records that nobody should have written, or not so, or not so often; and offsets that are gone."""

import pytest

from support.broker import Broker
from support.faults.plugin import Survives
from support.faults.records import MORE, again, from_other_writers, late, poison
from support.faults.replay import offsets_reset

pytestmark = pytest.mark.timeout(300)


async def test_everything_published_three_times_counts_once(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, "published three times", again(2))


async def test_poison_in_every_topic(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, "poison in every topic", poison())


async def test_late_and_disordered_records_on_foreign_partitions(kafka: Broker, survives: Survives) -> None:
    outcome = await survives(kafka.bootstrap_servers, "late, disordered, misplaced", late())

    assert outcome.acknowledged > MORE


async def test_records_of_older_and_newer_writers(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, "older and newer writers", from_other_writers())


async def test_group_offsets_reset_to_the_start(kafka: Broker, survives: Survives) -> None:
    outcome = await survives(kafka.bootstrap_servers, "group offsets reset to 0", offsets_reset())

    assert outcome.extra_calls == 0
