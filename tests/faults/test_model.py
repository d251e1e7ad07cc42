"""A model that answers badly, or not at all."""

import pytest

from support.broker import Broker
from support.faults.injected import bad_model, model_down
from support.faults.plugin import Survives

pytestmark = pytest.mark.timeout(300)
TRANSIENT = ("429", "500", "reset", "hang")
UNUSABLE = ("truncated", "malformed", "huge", "empty")
RATE = 0.2
DOWN_S = 60.0


@pytest.mark.parametrize("kind", TRANSIENT)
async def test_transient_trouble_is_waited_out(kafka: Broker, survives: Survives, kind: str) -> None:
    await survives(kafka.bootstrap_servers, f"model: {kind}", bad_model(**{kind: RATE}))


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_unusable_reply_costs_at_most_its_own_trace(
    kafka: Broker, survives: Survives, kind: str
) -> None:
    fault = bad_model(**{kind: RATE})
    await survives(kafka.bootstrap_servers, f"model: {kind}", fault, expect_dead=None)


async def test_model_that_is_down_for_a_minute_buries_nothing(kafka: Broker, survives: Survives) -> None:
    await survives(kafka.bootstrap_servers, f"model down {DOWN_S:.0f} s", model_down(DOWN_S))
