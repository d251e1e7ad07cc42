"""What is counted, under which names, and that docs/reference/metrics.txt has every one of them."""

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from typing import get_args

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import ModelCall, Outgoing, PoisonError, TopicPartition
from combee.core.gate.canary_fold import Canary
from combee.core.gate.canary_verdict import CanaryReport, canary_report
from combee.core.gate.gate import Gate
from combee.core.gate.policy import CanaryPolicy
from combee.core.log.fates import Effect
from combee.core.playbook.retention import WarningKind
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.log.inspection.lag import Lags
from combee.process.settings.worker import WorkerSettings
from combee.process.telemetry import metrics as module
from combee.process.telemetry.counted import CountedLog, CountedModel
from combee.process.telemetry.health import Condition
from combee.process.telemetry.metrics import MAX_PLAYBOOKS, Metrics, new_registry
from combee.process.telemetry.served import ServedTelemetry
from combee.process.telemetry.telemetry import Telemetry
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.batch import Batch
from combee_schemas.codec import encode
from combee_schemas.gate import Decision
from combee_schemas.model import Prompt, Reply
from combee_schemas.outcome import Figures, OutcomeStatistics, VersionOutcomes
from combee_schemas.playbook import Audit, Label, Playbook
from support import shown
from support.clock import ManualClock
from support.deployment import Deployment
from support.flat import changed, flat
from support.ledger import applied, outgoing, reflection

pytestmark = pytest.mark.usefixtures("quick_polls")

LIST = shown.ROOT / "docs" / "reference" / "metrics.txt"
ROW = re.compile(r"^(combee_[a-z_]+)  (\w+)(?:  (.*))?$", re.MULTILINE)
TENANTS = ("support", "sales", module.OTHERS)
SHUFFLE = topics.REFLECTIONS.name


class Rig:
    """Metrics of a process, and a way to read them."""

    def __init__(self, service: str = "scan", prices: SpendPolicy = UNCAPPED) -> None:
        self.clock = ManualClock()
        self.registry = new_registry()
        self.metrics = Metrics(self.registry, self.clock, service=service, cost=prices.cost)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_document_has_every_metric_with_its_type_and_labels(rig: Rig) -> None:
    feed_everything(rig)
    told = {
        name: (kind, frozenset(re.findall(r"\w+", labels)))
        for name, kind, labels in ROW.findall(LIST.read_text("utf-8"))
    }
    assert told == in_registry(rig.registry)


def test_a_dead_letter_of_any_input_is_an_increase_from_the_first_one_on(rig: Rig) -> None:
    inputs = [topic.name for topic in topics.TOPICS if "scan" in topic.read_by]
    assert inputs
    assert {rig.value("combee_dead_letters_total", topic=name) for name in inputs} == {0.0}


def in_registry(registry: CollectorRegistry) -> dict[str, tuple[str, frozenset[str]]]:
    found = {}
    for family in registry.collect():
        if not family.name.startswith("combee_"):
            continue
        labels = frozenset(name for sample in family.samples for name in sample.labels) - {"le"}
        kind = "gauge" if family.type == "info" else family.type
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        found[f"{family.name}{ending}"] = (kind, labels)
    return found


def feed_everything(rig: Rig) -> None:
    rig.metrics.called(ModelCall(outcome="answered", seconds=1.0, attempt=1, tokens_in=1, tokens_out=1))
    rig.metrics.written("updates")
    rig.metrics.dead_lettered("traces")
    rig.metrics.forged("traces")
    rig.metrics.held({"tenant": 1})
    rig.metrics.restarted("fenced")
    rig.metrics.published(changed(version(), audit=Audit(new=1), omitted_recent=(0.0,)))
    rig.metrics.outcomes(of_runs("one", 7))
    rig.metrics.canary("one", tried())
    rig.metrics.gate(gate(5))
    rig.metrics.decided(Decision(playbook="one", decided="accepted", candidate=4, version=4))
    rig.metrics.open({TopicPartition(topic="scan.0", partition=0): 1})
    rig.metrics.conditions([Condition(name="views", good=True, says="")])
    asyncio.run(one_look(rig))


def gate(candidate: int, name: str = "one") -> Gate:
    waiting = Label(playbook=name, label="candidate", version=candidate, moved_at_ms=7_000)
    production = Label(playbook=name, label="production", version=4, gate=("approve",))
    return Gate(production=production, candidate=waiting if candidate else None)


def test_a_gate_says_since_when_a_candidate_waits_and_nothing_where_none_does(rig: Rig) -> None:
    rig.metrics.gate(gate(5))
    assert rig.value("combee_gate_candidate_since_seconds", playbook="one") == 7.0
    rig.metrics.gate(gate(0))
    assert rig.value("combee_gate_candidate_since_seconds", playbook="one") is None
    assert rig.value("combee_gate_production_version", playbook="one") == 4
    for number in range(MAX_PLAYBOOKS + 1):
        rig.metrics.gate(gate(5, f"p{number}"))
    assert rig.value("combee_gate_production_version", playbook="p0") is None
    assert rig.value("combee_gate_candidate_since_seconds", playbook="p0") is None
    assert rig.value("combee_gate_production_version", playbook=f"p{MAX_PLAYBOOKS}") == 4


def tried() -> CanaryReport:
    terms = CanaryPolicy().terms("one", 5, 4, 0)
    return canary_report(Canary(playbook="one", terms=terms), 0)


def test_a_canary_says_how_far_it_is_and_nothing_when_it_is_over(rig: Rig) -> None:
    rig.metrics.canary("one", tried())
    assert rig.value("combee_canary_callers", playbook="one", arm="candidate") == 0
    assert rig.value("combee_canary_e_value", playbook="one", of="acceptance") == 1
    rig.metrics.canary("one", None)
    assert rig.value("combee_canary_callers", playbook="one", arm="candidate") is None
    for number in range(MAX_PLAYBOOKS + 1):
        rig.metrics.canary(f"p{number}", tried())
    assert rig.value("combee_canary_callers", playbook="p0", arm="control") is None
    assert rig.value("combee_canary_callers", playbook=f"p{MAX_PLAYBOOKS}", arm="control") == 0


def of_runs(line: str, *versions: int) -> OutcomeStatistics:
    figures = Figures(runs=5, successes=3, failures=1, unscored=1)
    told = tuple(VersionOutcomes(version=number, figures=figures) for number in versions)
    return OutcomeStatistics(line=line, versions=told)


def test_success_is_that_of_the_newest_version_with_its_interval(rig: Rig) -> None:
    rig.metrics.outcomes(of_runs("one", 3, 4))
    rig.metrics.outcomes(of_runs("none"))
    assert rig.value("combee_outcome_runs", playbook="one", result="unscored") == 1
    assert rig.value("combee_outcome_success_ratio", playbook="one", bound="mean") == 0.75
    low, high = (
        rig.value("combee_outcome_success_ratio", playbook="one", bound=at) for at in ("low", "high")
    )
    assert (low, high) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert rig.value("combee_outcome_runs", playbook="none", result="unscored") is None


def test_outcomes_have_labels_for_so_many_playbooks_those_heard_of_last(rig: Rig) -> None:
    for number in range(MAX_PLAYBOOKS + 1):
        rig.metrics.outcomes(of_runs(f"p{number}", 1))
    assert rig.value("combee_outcome_runs", playbook=f"p{MAX_PLAYBOOKS}", result="successes") == 3
    assert rig.value("combee_outcome_runs", playbook="p0", result="successes") is None
    assert rig.value("combee_outcome_success_ratio", playbook="p0", bound="mean") is None


async def one_look(rig: Rig) -> None:
    rig.metrics.lag(await Lags(MemoryLog(rig.clock), "scan").look())


def version(name: str = "one", *, retention: float = 0.9) -> Playbook:
    return flat(
        Playbook,
        name=name,
        version=1,
        batch_id="b",
        batch_sequence=1,
        origin="batch",
        audit=Audit(new=round(100 * retention), omitted=round(100 - 100 * retention)),
        closed_at_ms=1_000,
        created_at_ms=3_500,
    )


def test_nothing_is_in_the_librarys_global_registry(rig: Rig) -> None:
    feed_everything(rig)
    assert [one.name for one in REGISTRY.collect() if one.name.startswith("combee")] == []
    assert Rig().value("combee_records_written_total", topic="updates") is None


def test_the_text_is_what_prometheus_reads(rig: Rig) -> None:
    feed_everything(rig)
    kind, body = rig.metrics.text()
    assert kind.startswith("text/plain")
    assert b'combee_lag_records{service="scan",topic="scan.0"} 0.0' in body
    assert b"process_resident_memory_bytes" in body or sys.platform != "linux"


# ---- the model


def test_calls_are_told_apart_and_cost_what_the_prices_say() -> None:
    rig = Rig(prices=SpendPolicy(price_in=2.0, price_out=10.0, price_cached_in=0.5))
    rig.metrics.called(ModelCall(outcome="failed", seconds=5.0, attempt=1))
    rig.metrics.called(
        ModelCall(
            outcome="answered",
            seconds=1.0,
            attempt=2,
            tokens_in=1_000_000,
            cached_tokens=400_000,
            tokens_out=500_000,
        )
    )
    assert rig.value("combee_model_call_seconds_count", outcome="failed") == 1
    assert rig.value("combee_model_call_seconds_sum", outcome="answered") == 1.0
    assert rig.value("combee_model_retries_total") == 1
    assert rig.value("combee_model_tokens_total", direction="in") == 1_000_000
    assert rig.value("combee_model_tokens_total", direction="cached") == 400_000
    assert rig.value("combee_model_cost_total") == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.5 * 10)


class Model:
    """Answers once allowed to; with an error if there is one."""

    def __init__(self, usage: Usage, error: PoisonError | None = None) -> None:
        self.gate = asyncio.Event()
        self._usage = usage
        self._error = error

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:  # noqa: ARG002
        await self.gate.wait()
        if self._error is not None:
            self._error.usage = self._usage
            raise self._error
        return Reply(body={}, usage=self._usage)

    def drain(self) -> None: ...

    async def close(self) -> None: ...


PROMPT = Prompt(system="", user="", reply_name="x")


async def test_questions_are_in_flight_until_they_are_over_whatever_comes_of_them(rig: Rig) -> None:
    good, bad, lost = Model(Usage(re_asks=1)), Model(Usage(re_asks=1), PoisonError("no")), Model(Usage())
    asks = [asyncio.create_task(CountedModel(one, rig.metrics).ask(PROMPT)) for one in (good, bad, lost)]
    await asyncio.sleep(0)
    assert rig.value("combee_questions_in_flight") == 3
    good.gate.set()
    bad.gate.set()
    asks[2].cancel()
    found = await asyncio.gather(*asks, return_exceptions=True)
    assert isinstance(found[1], PoisonError)
    assert rig.value("combee_questions_in_flight") == 0
    assert rig.value("combee_model_re_asks_total") == 2


# ---- the log


class Written:
    def __init__(self) -> None:
        self.topics: list[str] = []

    def __call__(self, outgoing: Sequence[Outgoing]) -> None:
        self.topics += [one.topic for one in outgoing]


async def test_writes_count_once_they_are_acknowledged_or_committed(rig: Rig) -> None:
    written = Written()
    log = CountedLog(MemoryLog(rig.clock), written)
    await log.produce(Outgoing(topic="updates", value=b"x", key=b"k"))
    transactor = await log.transactor("publish-0")
    async with transactor.transaction() as transaction:
        await transaction.send(Outgoing(topic="history", value=b"x", key=b"k"))
        assert written.topics == ["updates"]
    assert written.topics == ["updates", "history"]


async def test_what_a_transaction_gave_up_does_not_count(rig: Rig) -> None:
    written = Written()
    transactor = await CountedLog(MemoryLog(rig.clock), written).transactor("publish-0")
    with pytest.raises(PoisonError):
        await given_up(transactor)
    assert written.topics == []


async def given_up(transactor: object) -> None:
    async with transactor.transaction() as transaction:  # type: ignore[attr-defined]
        await transaction.send(Outgoing(topic="history", value=b"x", key=b"k"))
        raise PoisonError("no")


# ---- lag


async def test_the_oldest_uncommitted_record_ages_by_the_clock_without_another_look() -> None:
    rig = Rig("shuffle")
    log = MemoryLog(rig.clock)
    await log.produce(*(Outgoing(topic=SHUFFLE, value=b"x", partition=0) for _ in range(3)))
    rig.clock.advance(4)
    lags = Lags(log, "shuffle")
    rig.metrics.lag(await lags.look())
    assert rig.value("combee_lag_records", service="shuffle", topic=SHUFFLE) == 3
    assert rig.value("combee_lag_seconds", service="shuffle", topic=SHUFFLE) == 4
    rig.clock.advance(6)
    assert rig.value("combee_lag_seconds", service="shuffle", topic=SHUFFLE) == 10
    await commit(log, 3)
    rig.metrics.lag(await lags.look())
    assert rig.value("combee_lag_records", service="shuffle", topic=SHUFFLE) == 0
    assert rig.value("combee_lag_seconds", service="shuffle", topic=SHUFFLE) == 0


async def commit(log: MemoryLog, offset: int) -> None:
    async with (await log.transactor("x")).transaction() as transaction:
        await transaction.commit_offsets("shuffle", {TopicPartition(topic=SHUFFLE, partition=0): offset})


class Reading(MemoryLog):
    reads = 0

    def read(self, source: TopicPartition, start: int, end: int | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN201
        self.reads += 1
        return super().read(source, start, end)


async def test_a_backlog_that_does_not_move_is_read_once() -> None:
    log = Reading(ManualClock())
    await log.produce(*(Outgoing(topic=SHUFFLE, value=b"x", partition=0) for _ in range(3)))
    lags = Lags(log, "shuffle")
    first = await lags.look()
    await log.produce(Outgoing(topic=SHUFFLE, value=b"x", partition=0))
    second = await lags.look()
    assert (first[SHUFFLE].records, second[SHUFFLE].records, log.reads) == (3, 4, 1)


def test_the_age_of_the_last_look_is_told(rig: Rig) -> None:
    rig.clock.advance(33)
    assert rig.value("combee_lag_look_age_seconds") == 33
    rig.metrics.looked()
    assert rig.value("combee_lag_look_age_seconds") == 0


# ---- results


def test_a_version_tells_what_became_of_its_reflections(rig: Rig) -> None:
    audit = Audit(new=5, known=2, dropped=1, omitted=2, said=9, verified=7)
    for _ in range(2):
        rig.metrics.published(changed(version(), audit=audit, omitted_recent=(0.0, 0.2)))
    assert rig.value("combee_omitted_ratio", playbook="one") == 0.2
    assert rig.value("combee_said_ratio", playbook="one") == 0.9
    assert rig.value("combee_verified_ratio", playbook="one") == 0.7
    found = {fate: rig.value("combee_batch_reflections_total", fate=fate) for fate in get_args(Effect)}
    assert found == {"new": 10, "known": 4, "dropped": 2, "omitted": 4}


def test_a_version_tells_what_doctor_warns_of(rig: Rig) -> None:
    def warned() -> dict[str, float | None]:
        return {
            kind: rig.value("combee_retention_warning", playbook="one", warning=kind)
            for kind in get_args(WarningKind)
        }

    rig.metrics.published(version())
    assert warned() == {"omitted": 0, "unverified": 0}
    rig.metrics.published(changed(version(), omitted_recent=(0.6,), omitted_count=6))
    assert warned() == {"omitted": 1, "unverified": 0}
    rig.metrics.published(changed(version(), audit=Audit(new=10, said=10, verified=5, carried=5)))
    assert warned() == {"omitted": 0, "unverified": 1}


def test_a_version_tells_its_retention_and_how_long_its_batch_took(rig: Rig) -> None:
    rig.metrics.published(version())
    rig.metrics.published(version().model_copy(update={"origin": "import", "batch": None}))
    assert rig.value("combee_retention_ratio", playbook="one") == 0.9
    assert rig.value("combee_batch_retention_ratio_count") == 1
    assert rig.value("combee_batch_seconds_sum") == 2.5
    assert rig.value("combee_versions_total", origin="batch") == 1
    assert rig.value("combee_versions_total", origin="import") == 1


def test_a_version_tells_how_many_calls_were_made_a_second_time(rig: Rig) -> None:
    for _ in range(2):
        rig.metrics.published(changed(version(), usage=Usage(calls=9, hedges=2)))
    assert rig.value("combee_hedged_calls_total") == 4


def test_a_version_counts_for_its_tenant_and_tenants_beyond_the_limit_count_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TENANTS", 2)
    rig = Rig(prices=SpendPolicy(price_in=1.0, price_out=10.0))
    for name in ("support/a", "support/b@small", "sales", "third/a", "fourth/a"):
        rig.metrics.published(
            changed(version(name), usage=Usage(calls=1, tokens_in=1_000_000, tokens_out=100_000))
        )
    tokens = {tenant: rig.value("combee_tenant_tokens_total", tenant=tenant) for tenant in TENANTS}
    assert tokens == {"support": 2_200_000, "sales": 1_100_000, "(others)": 2_200_000}
    assert rig.value("combee_tenant_cost_total", tenant="support") == pytest.approx(4.0)
    assert rig.value("combee_tenant_tokens_total", tenant="third") is None


def test_beyond_the_limit_the_playbooks_heard_of_last_have_labels(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PLAYBOOKS", 2)
    for number in range(5):
        rig.metrics.published(version(f"p{number}"))
    rig.metrics.published(version("p0", retention=0.3))
    assert rig.value("combee_retention_ratio", playbook="p0") == 0.3
    assert rig.value("combee_retention_ratio", playbook="p4") == 0.9
    assert rig.value("combee_retention_ratio", playbook="p3") is None
    assert rig.value("combee_batch_retention_ratio_count") == 6


def test_the_oldest_batch_in_flight_ages(rig: Rig) -> None:
    closed = rig.clock.now_ms()
    rig.clock.advance(5)
    rig.metrics.in_flight([batch(1, closed), batch(2, closed + 1000)])
    assert rig.value("combee_batches_in_flight") == 2
    assert rig.value("combee_batch_age_seconds") == 5
    rig.metrics.in_flight([])
    assert rig.value("combee_batch_age_seconds") == 0


def batch(sequence: int, closed_at_ms: int) -> Batch:
    return flat(
        Batch,
        batch_id=f"b{sequence}",
        playbook="one",
        sequence=sequence,
        seed=0,
        members=(),
        copies=1,
        widths=(1,),
        base_version=0,
        through_offset=0,
        reason="size",
        batch_size=1,
        closed_at_ms=closed_at_ms,
    )


# ---- the wiring


def served(rig: Rig) -> ServedTelemetry:
    settings = WorkerSettings(dead_letters_per_minute=2)
    return ServedTelemetry("scan", settings, 0, rig.clock, rig.metrics)


async def test_dead_letters_and_versions_are_recognised_among_what_is_written(rig: Rig) -> None:
    telemetry = served(rig)
    log = telemetry.counted(MemoryLog(rig.clock))
    letter = Outgoing(topic=topics.DEAD_LETTERS.name, key=b"traces", value=b"any")
    await log.produce(letter, letter)
    await log.produce(Outgoing(topic=topics.HISTORY.name, key=b"one", value=encode(version())))
    await log.produce(Outgoing(topic=topics.HISTORY.name, key=b"one", value=b"not ours"))
    assert rig.value("combee_dead_letters_total", topic="traces") == 2
    assert rig.value("combee_versions_total", origin="batch") == 1
    (red,) = [one.name for one in telemetry.health.conditions() if not one.good and one.name != "assigned"]
    assert red == "dead_letters"


def test_only_a_loop_with_partitions_counts_as_assigned(rig: Rig) -> None:
    telemetry = served(rig)
    telemetry.ready()
    telemetry.turned({})
    assert not {one.name: one.good for one in telemetry.health.conditions()}["assigned"]
    telemetry.turned({TopicPartition(topic="scan.0", partition=0): 0})
    assert {one.name: one.good for one in telemetry.health.conditions()}["assigned"]


def test_without_a_port_nothing_is_wrapped() -> None:
    log = MemoryLog(ManualClock())
    assert Telemetry("scan", None).counted(log) is log


async def test_the_shuffler_tells_its_batches_in_flight() -> None:
    deployment = Deployment(batch_size=5)
    async with deployment.running(["shuffle"]):
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(5)))
        await deployment.until(lambda: bool(deployment.shuffler and deployment.shuffler.in_flight()))
        assert deployment.shuffler is not None
        (batch,) = deployment.shuffler.in_flight()
        assert batch.plan.sequence == 1
        async with deployment.running(["scan", "publish"]):
            await deployment.until(lambda: applied(deployment.log) == 5)
            await deployment.until(lambda: not deployment.shuffler or not deployment.shuffler.in_flight())


def test_open_records_are_summed_by_topic(rig: Rig) -> None:
    found: Mapping[TopicPartition, int] = {
        TopicPartition(topic="scan.0", partition=0): 2,
        TopicPartition(topic="scan.0", partition=1): 3,
        TopicPartition(topic="scan.1", partition=0): 0,
    }
    rig.metrics.open(found)
    assert rig.value("combee_open_records", topic="scan.0") == 5
    assert rig.value("combee_open_records", topic="scan.1") == 0


def test_no_number_of_invented_playbooks_hides_one_with_a_warning(rig: Rig) -> None:
    audit = Audit(new=1)
    for number in range(MAX_PLAYBOOKS):
        rig.metrics.published(changed(version(f"before-{number}"), audit=audit, omitted_recent=(0.0,)))
    rig.metrics.published(changed(version("honest"), audit=audit, omitted_recent=(0.6,), omitted_count=6))
    for number in range(2 * MAX_PLAYBOOKS):
        rig.metrics.published(changed(version(f"after-{number}"), audit=audit, omitted_recent=(0.0,)))
    for name, value in (("honest", 1), ("before-0", None), ("after-0", None)):
        assert rig.value("combee_retention_warning", playbook=name, warning="omitted") == value
