"""The scale model: what it reads from the benchmark tables, and that its queues behave as queues do."""

from dataclasses import replace

import pytest
from benchmarks.scale_out import costs as model
from benchmarks.scale_out.costs import Cost, Costs
from benchmarks.scale_out.flow import Deployment, Flow, Load, Outcome, batch_size, batch_time_s

FREE = Cost(unit_ms=0.0, reflection_ms=0.0)
COSTS = Costs(
    by_role={
        "shuffle": Cost(unit_ms=5.0, reflection_ms=0.5),
        "scan": Cost(unit_ms=10.0, reflection_ms=0.3),
        "publish": Cost(unit_ms=10.0, reflection_ms=0.2),
        "control": FREE,
    },
    hop_s=0.005,
    transaction_s=0.02,
)
AT = Deployment(
    partitions=32, shuffle=8, scan=16, publish=8, calls_each=16, in_flight=4, call_s=1.0, sigma=0.3
)
RUN_S = 40.0


def run(at: Deployment, load: Load, seed: int = 1) -> Outcome:
    flow = Flow(at, COSTS, load.rates(), seed)
    flow.arrive(RUN_S)
    return flow.run(RUN_S)


def test_costs_are_what_both_measured_batches_took() -> None:
    assert model._through(1, 40, 27.0, 1, 400, 207.0) == pytest.approx((7.0, 0.5))
    assert model._through(7, 40, 62.0, 21, 400, 263.0) == pytest.approx((51 / 7, 0.275))


@pytest.mark.parametrize("ms", [(20.0, 400.0), (20.0, 10.0)])
def test_noise_makes_no_cost_negative(ms: tuple[float, float]) -> None:
    unit, each = model._through(1, 40, ms[0], 1, 400, ms[1])

    assert min(unit, each) == 0
    assert unit + 40 * each == pytest.approx(ms[0])


def test_what_full_playbooks_cost_is_measured_where_a_table_has_it_and_else_assumed() -> None:
    full = f"{model.EACH}, playbooks of {model.PLAYBOOK_TOKENS} tokens: scan"
    figures = {("processor", f"{model.EACH}: scan"): 1.0, ("processor", full): 1.5}

    assert model._full(figures, "scan") == (1.5, "× 1.50 measured for full playbooks")
    assert model._full({}, "scan") == (model.FULL, "× 1.3 assumed for full playbooks")


def test_a_light_load_is_learned_as_it_comes_and_waits_for_little_but_its_batch() -> None:
    load = Load(per_s=400.0, playbooks=10, skew=0.0)

    outcome = run(AT, load)

    assert outcome.learned_per_s == pytest.approx(400, rel=0.1)
    size = batch_size(40.0, AT, COSTS)
    assert outcome.stale_s[0] == pytest.approx(size / 40 / 2 + batch_time_s(size, AT, COSTS), rel=0.25)
    assert max(outcome.busy.values()) < 0.5


def test_every_reflection_is_learned_once_and_in_a_version() -> None:
    flow = Flow(AT, COSTS, [1.0] * 7, 3, size=80)
    flow.fill(400)

    flow.run()

    assert sum(lot for _, _, lot in flow._learned) == 7 * 400
    assert all(arrived <= done for arrived, done, _ in flow._learned)


def test_a_playbook_gets_no_more_than_its_shuffle_process_can_do_however_many_there_are() -> None:
    hot = Load(per_s=4_000.0, playbooks=1, skew=0.0)
    at = replace(AT, shuffle=32, in_flight=16, calls_each=1_000)

    outcome = run(at, hot)

    assert outcome.busy["shuffle"] == 1.0
    assert outcome.learned_per_s < 1 / 0.5e-3
    assert outcome.behind_per_s > 1_500
