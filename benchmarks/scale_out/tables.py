"""The tables of the scale model, as they are published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp

from benchmarks import scaling
from benchmarks.scale_out import costs as model
from benchmarks.scale_out.costs import Cost, Costs
from benchmarks.scale_out.flow import SIZES, Deployment, Flow, Load, Outcome, batch_size, batch_time_s

Lines = Sequence[Sequence[str]]
WANTED_PER_S, PLAYBOOKS = 100_000.0, 1_000
CALL_S, SIGMA = 2.0, 0.5
"""Assumed: log-normal."""
FULLY_USED = 0.7
"""Assumed: processes are planned to work so much of their time."""
BROKER_MB_S, REPLICAS = 50.0, 3
"""Assumed: what a broker takes in, replicas included."""
CORE_HOUR, MILLION_READ, MILLION_CACHED, MILLION_WRITTEN = 0.05, 0.10, 0.025, 0.40
"""Assumed prices in dollars: of a core for an hour, and of a million tokens."""
IN_FLIGHT_DEFAULT, IN_FLIGHT_MOST = 1, 16
CALLS_EACH = 64
RUN_S = 60.0
SEED = 1
SIZES_SHOWN = (40, 400, 2_000)
SKEWS = (0.0, 0.5, 1.0)
KAFKA = "measured (performance-kafka.csv)"
PACE = Deployment(
    partitions=1,
    shuffle=1,
    scan=1,
    publish=1,
    calls_each=CALLS_EACH,
    in_flight=IN_FLIGHT_DEFAULT,
    call_s=CALL_S,
    sigma=SIGMA,
)
"""One process of each."""


def inputs(costs: Costs) -> Lines:
    """Return what the model rests on, and which of it is measured."""
    return [
        ["input", "value", "from"],
        *(_cost(role, cost) for role, cost in costs.by_role.items()),
        ["a hop, a transaction", f"{costs.hop_s:.3f} s, {costs.transaction_s:.3f} s", KAFKA],
        ["tree, calls, partition of a playbook", "the product's code", "computed"],
        ["bytes written", "the product's records", "computed"],
        ["a reflection", f"{model.REFLECTION_BYTES:,} bytes", "assumed"],
        [
            "a playbook that a call reads",
            f"{model.PLAYBOOK_TOKENS:,} tokens",
            "assumed: the default budget, full",
        ],
        ["a model call", f"log-normal, median {CALL_S:g} s, sigma {SIGMA:g}", "assumed"],
        ["calls in flight of a scan worker", str(CALLS_EACH), "assumed"],
        ["a process is planned to work", f"{FULLY_USED:.0%}", "assumed"],
        ["a broker takes in", f"{BROKER_MB_S:g} MB/s, {REPLICAS} replicas", "assumed"],
        ["a core-hour", f"${CORE_HOUR:g}", "assumed"],
        [
            "a million tokens read, cached, written",
            f"${MILLION_READ:g}, ${MILLION_CACHED:g}, ${MILLION_WRITTEN:g}",
            "assumed",
        ],
    ]


def _cost(role: str, cost: Cost) -> Sequence[str]:
    unit = "call" if role == "scan" else "batch"
    return (
        f"{role}, per {unit} and per reflection",
        f"{cost.unit_ms:.2f} ms, {cost.reflection_ms:.3f} ms",
        ", ".join(["measured (performance.csv)", *([cost.full] if cost.full else [])]),
    )


def needs(costs: Costs) -> Lines:
    """Return what 100,000 reflections a second need if playbooks have equal shares, by batch size."""
    columns = {f"batches of {size:,}": _needs(costs, size) for size in SIZES_SHOWN}
    names = next(iter(columns.values()))
    return [["", *columns], *([name, *(column[name] for column in columns.values())] for name in names)]


def _needs(costs: Costs, size: int) -> Mapping[str, str]:
    batches, calls = WANTED_PER_S / size, model.calls(size)
    cores = {role: batches * costs.batch_s(role, size) for role in model.ROLES}
    read, cached, wrote = (tokens / size for tokens in model.tokens(size))
    written_mb = batches * model.written_bytes(size) / 1e6
    brokers = ceil(written_mb * REPLICAS / BROKER_MB_S)
    core_hours = sum(cores.values()) / WANTED_PER_S * 1e6 / 3600
    dollars = core_hours * CORE_HOUR
    asked = (read - cached) * MILLION_READ + cached * MILLION_CACHED + wrote * MILLION_WRITTEN
    return {
        **{f"cores: {role}": f"{number:,.0f}" for role, number in cores.items()},
        f"processes at {FULLY_USED:.0%}": f"{sum(ceil(number / FULLY_USED) for number in cores.values()):,}",
        "batches a second": f"{batches:,.0f}",
        "transactions a second": f"{2 * batches:,.0f}",
        "model calls a second": f"{batches * calls:,.0f}",
        f"calls in flight at {CALL_S:g} s": f"{batches * calls * CALL_S:,.0f}",
        "million tokens read a second": f"{read * WANTED_PER_S / 1e6:,.0f}",
        "… of these from a prompt cache at best": f"{cached * WANTED_PER_S / 1e6:,.0f}",
        "written to the log, MB/s": f"{written_mb:,.0f}",
        f"brokers with {REPLICAS} replicas, {BROKER_MB_S:g} MB/s each": str(brokers),
        "core-hours per million reflections": f"{core_hours:.2f}",
        "model calls per million reflections": f"{calls / size * 1e6:,.0f}",
        "GB written per million reflections": f"{model.written_bytes(size) / size / 1e3:,.1f}",
        "services, $ per million reflections": f"{dollars:.3f}",
        "model, $ per million reflections": f"{asked:,.0f}",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most that one playbook may get, as it has one partition and one order."""

    name: str
    per_s: float
    in_flight: int | None = None
    """It holds with so many batches in flight; None: with any number."""


def limits(costs: Costs) -> list[Limit]:
    """Return the limits of one playbook, the first to be reached first."""
    size = SIZES[-1]
    time_s = batch_time_s(size, PACE, costs)
    flights = {IN_FLIGHT_DEFAULT: "the default", IN_FLIGHT_MOST: "the most"}
    found = [
        Limit(
            name=f"batches of {size:,}, {time_s:.1f} s each: {number} in flight ({which})",
            per_s=number * size / time_s,
            in_flight=number,
        )
        for number, which in flights.items()
    ]
    processes = [
        Limit(name=f"its {role} process", per_s=size / costs.batch_s(role, size))
        for role in ("shuffle", "publish")
    ]
    return sorted([*found, *processes], key=lambda limit: limit.per_s)


def limits_table(costs: Costs) -> Lines:
    """Return each limit, and at how many reflections a second in all the busiest playbook reaches it."""
    head = ["one playbook", "reflections/s", *(f"in all, Zipf {skew:g}" for skew in SKEWS)]
    return [
        head,
        *(
            [limit.name, f"{limit.per_s:,.0f}", *(f"{limit.per_s / _busiest(skew):,.0f}" for skew in SKEWS)]
            for limit in limits(costs)
        ),
    ]


def _busiest(skew: float) -> float:
    """Return the share of the busiest playbook."""
    return Load(per_s=1.0, playbooks=PLAYBOOKS, skew=skew).rates()[0]


def deployment(costs: Costs, load: Load, *, in_flight: int) -> Deployment:
    """Return processes for a load, planned as if each could do any part of it."""
    pace = replace(PACE, in_flight=in_flight)
    sizes = [(rate, batch_size(rate, pace, costs)) for rate in load.rates()]

    def processes(role: str) -> int:
        return ceil(sum(rate / size * costs.batch_s(role, size) for rate, size in sizes) / FULLY_USED)

    shuffle, publish = processes("shuffle"), processes("publish")
    calls = sum(rate / size * model.calls(size) for rate, size in sizes) * CALL_S * exp(SIGMA**2 / 2)
    return replace(
        pace,
        partitions=4 * max(shuffle, publish),
        shuffle=shuffle,
        scan=max(processes("scan"), ceil(calls / FULLY_USED / CALLS_EACH)),
        publish=publish,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run of the simulation."""

    per_s: float
    skew: float
    in_flight: int


def scenarios(costs: Costs) -> Iterator[Scenario]:
    """Yield the wanted load at each skew; and the steepest skew at half and twice its first limit."""
    for skew in SKEWS:
        yield Scenario(per_s=WANTED_PER_S, skew=skew, in_flight=IN_FLIGHT_MOST)
    for number in (IN_FLIGHT_MOST, IN_FLIGHT_DEFAULT):
        first = min(limit.per_s for limit in limits(costs) if limit.in_flight in {None, number})
        for part in (0.5, 2.0):
            yield Scenario(
                per_s=round(part * first / _busiest(SKEWS[-1]), -1), skew=SKEWS[-1], in_flight=number
            )


SIMULATED_HEAD = (
    *("reflections/s", "Zipf", "batches in flight", "partitions", "shuffle", "scan", "publish"),
    *("learned/s", "more waiting each second", "staleness p50, s", "p95, s"),
    *("busiest shuffle", "busiest scan", "busiest publish", "calls in flight", "verdict"),
)
KEEPS_UP = 0.03
"""Fewer than this share of what arrives may wait in addition."""


def simulations(costs: Costs) -> Lines:
    """Return the lines of all scenarios."""
    return [SIMULATED_HEAD, *(simulated(costs, scenario) for scenario in scenarios(costs))]


def simulated(costs: Costs, scenario: Scenario) -> Sequence[str]:
    """Return the line of one simulated run."""
    load = Load(per_s=scenario.per_s, playbooks=PLAYBOOKS, skew=scenario.skew)
    at = deployment(costs, load, in_flight=scenario.in_flight)
    flow = Flow(at, costs, load.rates(), SEED)
    flow.arrive(RUN_S)
    return [
        *(f"{scenario.per_s:,.0f}", f"{scenario.skew:g}", str(scenario.in_flight), f"{at.partitions:,}"),
        *(f"{number:,}" for number in (at.shuffle, at.scan, at.publish)),
        *_outcome(flow.run(RUN_S), scenario.per_s),
    ]


def _outcome(outcome: Outcome, per_s: float) -> Iterator[str]:
    keeps_up = outcome.behind_per_s <= KEEPS_UP * per_s
    yield f"{outcome.learned_per_s:,.0f}"
    yield "0" if keeps_up else f"{outcome.behind_per_s:,.0f}"
    yield from (f"{seconds:.1f}" for seconds in outcome.stale_s)
    yield from (f"{outcome.busy[role]:.0%}" for role in ("shuffle", "scan", "publish", "calls"))
    yield "keeps up" if keeps_up else "falls behind"


def validation(costs: Costs) -> Lines:
    """Return the benchmark ``scaling``, measured and simulated: the same work, workers and slots."""
    lines: list[Sequence[str]] = [["scaling", "measured, s", "simulated, s"]]
    for workers, measured_s in sorted(model.scaling_s().items()):
        at = Deployment(
            partitions=4,
            shuffle=1,
            scan=workers,
            publish=1,
            calls_each=scaling.CONCURRENCY,
            in_flight=1,
            call_s=scaling.LATENCY_S,
            sigma=0.0,
        )
        flow = Flow(at, costs, [1.0] * scaling.PLAYBOOKS, 1, size=scaling.REFLECTIONS)
        flow.fill(scaling.REFLECTIONS)
        lines.append(
            [f"{workers} scan worker{'s' * (workers > 1)}", f"{measured_s:.1f}", f"{flow.run().last_s:.1f}"]
        )
    return lines
