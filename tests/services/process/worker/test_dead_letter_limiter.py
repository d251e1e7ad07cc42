"""Floods of dead letters: whose fault they are, who waits, who stops, and that nothing is lost by it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from combee.adapters.ports import FatalError, Outgoing, PoisonError, Record
from combee.core.log.dead_letters.flood import UNUSABLE, Doubt, Pause, Tally, judge
from combee.log.inspection import audit
from combee.process.telemetry.health import Health
from combee.process.worker.dead_letter_limiter import Control, DeadLetterLimiter, HeldBackError, PausedRecords
from combee.process.worker.loop import Loop
from combee.process.worker.session import together
from combee.reflect.handler import ReflectHandler
from combee.scan.handler import ScanHandler
from combee_schemas import topics
from combee_schemas.codec import encode
from combee_schemas.dead_letter import HeldBack
from combee_schemas.model import Prompt
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from support import ledger
from support.clock import ManualClock
from support.deployment import Deployment
from support.ledger import NAME, outgoing, records, reflection
from support.models import ModelClient, ScriptedModel, echo, is_combine, is_control
from support.rows import each_row
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")

LIMIT = 10


def bad(count: int) -> Tally:
    return Tally(failures=count, bad=count)


def good(count: int) -> Tally:
    return Tally(good=count)


@each_row(
    ("tallies", "wanted"),
    [
        ({"a": bad(9)}, None),
        ({"a": bad(10)}, Pause(playbook="a")),
        ({"a": bad(10) + good(10)}, None),
        ({"a": bad(5), "b": bad(5)}, Doubt(playbooks=(), bad=10, good=0)),
        ({"a": bad(9), "b": bad(1)}, Doubt(playbooks=(), bad=10, good=0)),
        ({"a": bad(9), "b": bad(1) + good(1)}, Doubt(playbooks=(), bad=10, good=1)),
        ({"a": bad(9), "b": bad(1) + good(2)}, Pause(playbook="a")),
        ({"a": bad(10), "b": good(1)}, Pause(playbook="a")),
        ({"a": bad(10) + good(10), "b": good(1)}, None),
        ({"a": bad(5), "b": bad(5), "c": good(10)}, None),
        ({"a": bad(10), "b": bad(12), "c": bad(9)}, Doubt(playbooks=("a", "b"), bad=31, good=0)),
        ({"a": Tally(failures=4, bad=400)}, None),
        ({"a": Tally(failures=5, bad=400)}, Pause(playbook="a")),
        ({}, None),
    ],
)
def test_whose_fault_a_flood_is(tallies: dict[str, Tally], wanted: object) -> None:
    assert judge(tallies, LIMIT) == wanted


@each_row(
    ("tallies", "wanted"),
    [
        ({UNUSABLE: bad(9)}, None),
        ({UNUSABLE: bad(10)}, Pause(playbook=UNUSABLE)),
        ({UNUSABLE: bad(10), "a": bad(100)}, Pause(playbook=UNUSABLE)),
        ({UNUSABLE: bad(9), "a": bad(9)}, None),
        ({UNUSABLE: bad(9), "a": bad(10)}, Pause(playbook="a")),
    ],
)
def test_what_is_of_no_use_by_itself_holds_back_its_like_and_speaks_against_nobody_else(
    tallies: dict[str, Tally], wanted: object
) -> None:
    assert judge(tallies, LIMIT) == wanted


def test_a_limit_of_one_needs_one_failure() -> None:
    assert judge({"a": bad(1)}, 1) == Pause(playbook="a")


def test_a_second_playbook_that_would_be_paused_is_a_doubt_about_the_model_unless_others_are_well() -> None:
    assert judge({"b": bad(10)}, LIMIT, {"a"}) == Doubt(playbooks=("b",), bad=10, good=0)
    assert judge({"b": bad(10), "c": good(2)}, LIMIT, {"a"}) == Pause(playbook="b")
    assert judge({"b": bad(10)}, LIMIT, {UNUSABLE}) == Pause(playbook="b")


async def useful() -> bool:
    return True


async def useless() -> bool:
    return False


async def flooded(clock: ManualClock) -> DeadLetterLimiter:
    """Return a limiter that has just paused playbook a."""
    limiter = DeadLetterLimiter(clock, limit=LIMIT)
    limiter.passed("b")
    for _ in range(LIMIT - 1):
        await limiter.failed("a", control=useless)
    with pytest.raises(HeldBackError):
        await limiter.failed("a", control=useless)
    return limiter


async def flood(limiter: DeadLetterLimiter, *names: str, control: Control = useless) -> None:
    """Let playbooks fail in turn until all of them are paused."""
    for _ in range(2 * LIMIT):
        for name in names:
            with suppress(HeldBackError):
                await limiter.failed(name, control=control)


async def test_replies_of_no_use_for_several_playbooks_stop_the_service_if_the_control_is_answered_no_better() -> (
    None
):
    limiter = DeadLetterLimiter(ManualClock(), limit=LIMIT)
    with pytest.raises(FatalError, match="stops before it dead-letters everything"):
        await flood(limiter, "a", "b")


async def test_replies_of_no_use_for_invented_playbooks_hold_back_these_alone_while_the_model_answers() -> (
    None
):
    clock = ManualClock()
    limiter = DeadLetterLimiter(clock, limit=LIMIT)
    asked = 0

    async def control() -> bool:
        nonlocal asked
        asked += 1
        return True

    invented = [f"invented/{n}" for n in range(6)]
    await asyncio.gather(*(flood(limiter, name, control=control) for name in invented))
    assert limiter.paused().keys() == set(invented)
    assert asked == 1, "at most once a minute"
    limiter.check("honest")


async def test_an_honest_playbook_with_one_useless_reply_does_not_wait_for_the_floods_of_others() -> None:
    limiter = DeadLetterLimiter(ManualClock(), limit=LIMIT)
    await limiter.failed("honest", control=useful)
    await flood(limiter, "a", "b", control=useful)
    await limiter.failed("honest", control=useful)
    assert set(limiter.paused()) == {"a", "b"}


async def test_a_control_holds_for_a_minute_then_it_is_asked_anew() -> None:
    clock = ManualClock()
    limiter = DeadLetterLimiter(clock, limit=LIMIT)
    await flood(limiter, "a", "b", control=useful)
    await flood(limiter, "c", "d", control=useless)
    assert set(limiter.paused()) == {"a", "b", "c", "d"}
    clock.advance(60)
    with pytest.raises(FatalError):
        await flood(limiter, "c", "d", control=useless)


async def test_while_the_control_is_asked_others_who_fail_wait_for_its_answer() -> None:
    limiter = DeadLetterLimiter(ManualClock(), limit=LIMIT)
    answered = asyncio.Event()
    asked = 0

    async def control() -> bool:
        nonlocal asked
        asked += 1
        await answered.wait()
        return True

    floods = [asyncio.create_task(flood(limiter, name, control=control)) for name in "ab" * LIMIT]
    await until(lambda: asked > 0)
    answered.set()
    await asyncio.gather(*floods)
    assert (asked, set(limiter.paused())) == (1, {"a", "b"})


async def test_a_paused_playbook_waits_and_resumes_by_itself_after_the_window() -> None:
    clock = ManualClock()
    limiter = await flooded(clock)
    with pytest.raises(HeldBackError):
        limiter.check("a")
    limiter.check("b")
    assert limiter.paused() == {"a": 60.0}
    clock.advance(60)
    limiter.check("a")
    await limiter.failed("a", control=useless)
    assert limiter.paused() == {}


async def test_each_further_pause_lasts_a_minute_though_nothing_comes_of_the_playbook() -> None:
    """A thousand traces of one source that failed held back the playbook's others for 29 hours."""
    clock = ManualClock()
    limiter = await flooded(clock)
    for _ in range(8):
        clock.advance(limiter.paused()["a"])
        await flood(limiter, "a")
        assert limiter.paused() == {"a": 60.0}


def test_records_of_no_use_by_themselves_wait_a_minute_at_most_and_never_stop_a_service() -> None:
    clock = ManualClock()
    limiter = DeadLetterLimiter(clock, limit=LIMIT)
    for _ in range(8):
        for _ in range(LIMIT - 1):
            limiter.unusable()
        for _ in range(3 * LIMIT):
            with pytest.raises(HeldBackError):
                limiter.unusable()
        assert limiter.paused() == {UNUSABLE: 60.0}
        limiter.check("a")
        clock.advance(60)


async def test_what_is_older_than_the_window_does_not_count() -> None:
    clock = ManualClock()
    limiter = DeadLetterLimiter(clock, limit=LIMIT)
    for _ in range(3 * LIMIT):
        clock.advance(60 / (LIMIT - 1) + 0.1)
        await limiter.failed("a", control=useless)


async def test_readiness_names_what_is_held_back() -> None:
    clock = ManualClock()
    limiter = await flooded(clock)
    health = Health(clock, dead_letters_per_minute=30, paused=limiter.paused)
    (found,) = (one for one in health.conditions() if one.name == "flood")
    assert (found.good, found.says) == (False, "too many dead letters, held back: a (60 s left)")
    clock.advance(60)
    assert all(one.good for one in health.conditions() if one.name == "flood")


def record(partition: int, offset: int) -> Record:
    return Record(topic="traces", partition=partition, offset=offset, timestamp_ms=0, key=None, value=b"x")


def test_paused_records_are_places_let_go_by_lot_by_partition_and_never_too_many() -> None:
    paused = PausedRecords(most=4)
    for offset in range(3):
        assert paused.add("a", record(0, offset))
    assert paused.add("b", record(1, 7))
    assert not paused.add("b", record(1, 8)), "there is no more room"
    first, second = record(0, 0).source, record(1, 0).source
    assert (paused.on({first}), paused.on({second})) == (3, 1)
    assert paused.due({"a"}, 10) == {second: [7]}
    assert paused.due((), 2) == {first: [0, 1]}
    assert paused.due((), -1) == {}
    paused.forget(first, [0, 1])
    assert paused.due((), 10) == {first: [2], second: [7]}
    paused.keep({second})
    assert paused.due((), 10) == {second: [7]}


async def test_a_paused_record_that_expired_meanwhile_holds_up_nothing() -> None:
    service = Service(Deployment(model=ScriptedModel(hostile)))
    log = service.deployment.log
    async with service.running():
        await log.produce(trace(0, "good"))
        await service.until(lambda: service.reflected() == names("good", 1))
        await log.produce(*(trace(n, "hostile") for n in range(20)))
        await service.until(lambda: len(service.paused) == 20 - (LIMIT - 1))
        log.expire(record(0, 0).source, 21)
        service.deployment.clock.advance(60)
        await service.until(lambda: service.committed() == 21)


# ---- a service behind a limiter


def trace(number: int, playbook: str) -> Outgoing:
    identity = f"{playbook}-{number}"
    made = Trace(trace_id=identity, playbook=playbook, task=f"task {identity}", answer=identity)
    return Outgoing(topic="traces", key=identity.encode(), value=encode(made), partition=0)


def hostile(prompt: Prompt) -> Mapping[str, Any]:
    """Answer, but for the hostile playbook's traces."""
    if "hostile" in prompt.user:
        raise PoisonError("no use")
    return echo(prompt)


def nothing_works(_: Prompt) -> Mapping[str, Any]:
    raise PoisonError("no use")


class Service:
    """One service of a deployment with a limiter before its dead letters."""

    def __init__(self, deployment: Deployment, *, paused: PausedRecords | None = None) -> None:
        self.deployment = deployment
        self.limiter = DeadLetterLimiter(deployment.clock, service="a service", limit=LIMIT)
        self.paused = PausedRecords() if paused is None else paused

    @asynccontextmanager
    async def running(self, role: str = "reflect", *, max_open: int = 8) -> AsyncIterator[asyncio.Task[None]]:
        log, clock, model = self.deployment.log, self.deployment.clock, ModelClient(self.deployment.model)
        handler = (
            ReflectHandler(log, model, clock, self.deployment.settings, self.limiter)
            if role == "reflect"
            else ScanHandler(log, model, clock, limiter=self.limiter)
        )
        loop = Loop(log, handler, clock, max_open=max_open, limiter=self.limiter, paused=self.paused)
        views = [handler.playbooks.view.run()]
        if isinstance(handler, ScanHandler):
            views.append(handler.manifests.run())
        work = together(loop.run(asyncio.Event(), drain_s=0.1), *views)
        task = asyncio.create_task(work)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], object]) -> None:
        await self.deployment.until(lambda: bool(condition()))

    def reflected(self) -> set[str | None]:
        log = self.deployment.log
        return {one.trace_id for one in ledger.messages(log, topics.REFLECTIONS, Reflection)}

    def letters(self) -> int:
        return len(ledger.dead_letters(self.deployment.log))

    def committed(self) -> int:
        found = self.deployment.log._store.committed.get("reflect", {})
        return next((at for source, at in found.items() if source.partition == 0), 0)


def names(playbook: str, count: int) -> set[str]:
    return {f"{playbook}-{number}" for number in range(count)}


async def test_one_producers_flood_waits_while_its_neighbours_go_on_and_then_resumes() -> None:
    service = Service(Deployment(model=ScriptedModel(hostile)))
    log = service.deployment.log
    async with service.running():
        await log.produce(*(trace(n, "good") for n in range(3)))
        await service.until(lambda: service.reflected() == names("good", 3))
        await log.produce(*(trace(n, "hostile") for n in range(50)))
        await service.until(lambda: len(service.paused) == 50 - (LIMIT - 1))
        asked = service.deployment.model.calls
        await log.produce(*(trace(n, "good") for n in range(3, 40)))
        await service.until(lambda: service.reflected() == names("good", 40))
        told = ledger.messages(log, topics.DEAD_LETTERS, HeldBack)
        assert [(one.service, one.playbook) for one in told] == [("reflect", "hostile")]
        assert service.letters() == LIMIT - 1, "no more than the limit allows"
        assert service.deployment.model.calls - asked == 37, "what is held back costs nothing"
        assert service.committed() <= 3 + LIMIT, "held records stay open under the low watermark"

        service.deployment.model.answer = echo
        service.deployment.clock.advance(60)
        await service.until(lambda: len(service.reflected()) == 90 - (LIMIT - 1))
        await service.until(lambda: service.committed() == 90)
    assert len(service.paused) == 0


async def test_what_is_held_back_is_the_next_workers_after_a_kill() -> None:
    deployment = Deployment(model=ScriptedModel(hostile))
    first = Service(deployment)
    async with first.running():
        await deployment.log.produce(trace(0, "good"), *(trace(n, "hostile") for n in range(20)))
        await first.until(lambda: len(first.paused) == 20 - (LIMIT - 1))
    deployment.model.answer = echo
    second = Service(deployment)
    async with second.running():
        await second.until(lambda: second.committed() == 21)
    buried = {letter.record_id for letter in ledger.dead_letters(deployment.log)}
    assert second.reflected() | buried == names("good", 1) | names("hostile", 20)


async def test_a_flood_of_what_cannot_be_read_waits_and_readable_records_go_on() -> None:
    service = Service(Deployment())
    log = service.deployment.log
    async with service.running():
        await log.produce(*(Outgoing(topic="traces", value=b"\xc1", partition=0) for _ in range(40)))
        await log.produce(*(trace(n, "good") for n in range(20)))
        await service.until(lambda: service.reflected() == names("good", 20))
        await service.until(lambda: len(service.paused) == 40 - (LIMIT - 1))
        assert service.letters() == LIMIT - 1


async def test_bad_records_under_invented_playbooks_and_an_honest_one_s_hold_back_no_good_record() -> None:
    service = Service(Deployment())
    log = service.deployment.log
    empty = [
        topics.TRACES.record(Trace(trace_id=f"{name}-{n}", playbook=name, task=""), partition=0)
        for n in range(20)
        for name in ("invented/one", "invented/two", "good")
    ]
    async with service.running():
        await log.produce(*empty)
        await log.produce(*(trace(n, "good") for n in range(20)))
        await service.until(lambda: service.reflected() == names("good", 20))
        await service.until(lambda: len(service.paused) == 60 - (LIMIT - 1))
        assert service.letters() == LIMIT - 1
        assert service.limiter.paused().keys() == {UNUSABLE}


@pytest.mark.parametrize("role", ["reflect", "scan"])
async def test_texts_that_no_reply_comes_of_under_invented_playbooks_stop_nobody(role: str) -> None:
    deployment = Deployment(model=ScriptedModel(hostile), batch_size=20, max_wait_s=1)
    invented = [f"hostile/{n}" for n in range(4)]
    service = Service(deployment)
    others = [one for one in ("shuffle", "publish") if role == "scan"]
    async with deployment.running(others), service.running(role) as task:
        for name in invented:
            await deployment.log.produce(
                *(trace(n, name) if role == "reflect" else said(n, name) for n in range(20))
            )
        if role == "reflect":
            await service.until(lambda: service.limiter.paused().keys() == set(invented))
        else:  # five groups fail of each at most: too few for a pause
            await service.until(lambda: all(ledger.versions(deployment.log, name) for name in invented))
        await deployment.log.produce(
            *(trace(n, "good") if role == "reflect" else said(n, "good") for n in range(20))
        )
        if role == "reflect":
            await service.until(lambda: service.reflected() == names("good", 20))
        else:
            await service.until(lambda: ledger.applied(deployment.log, "good") == 20)
        assert not task.done()


def said(number: int, playbook: str) -> Outgoing:
    one = reflection(number, playbook)
    return outgoing(one.model_copy(update={"key_insight": f"{one.key_insight} Of {playbook}."}))


async def test_where_no_more_can_be_held_the_rest_is_dead_lettered_and_neighbours_go_on() -> None:
    service = Service(Deployment(model=ScriptedModel(hostile)), paused=PausedRecords(most=5))
    log = service.deployment.log
    async with service.running():
        await log.produce(trace(0, "good"), *(trace(n, "hostile") for n in range(30)), trace(1, "good"))
        await service.until(lambda: service.reflected() == names("good", 2))
        await service.until(lambda: service.letters() == 30 - 5)
    reasons = {letter.reason for letter in ledger.dead_letters(log)}
    assert any("held back" in reason for reason in reasons)


async def test_a_bad_deploy_stops_reflect_before_everything_is_dead_lettered_and_nothing_is_lost() -> None:
    deployment = Deployment(model=ScriptedModel(nothing_works))
    await deployment.log.produce(*(trace(n, f"p{n % 4}") for n in range(100)))
    service = Service(deployment)
    async with service.running() as task:
        with pytest.raises(
            FatalError, match=r"stops before it dead-letters everything.*combee dlq retry --all"
        ):
            await task
    assert service.letters() == LIMIT - 1
    deployment.model.answer = echo
    mended = Service(deployment)
    async with mended.running():
        await mended.until(lambda: mended.committed() == 100)
    assert len(mended.reflected()) == 100 - (LIMIT - 1)
    assert mended.letters() == LIMIT - 1


async def test_a_bad_deploy_stops_scan_before_a_batch_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "AGAIN_S", 0.0)
    deployment = Deployment(model=ScriptedModel(nothing_works), batch_size=100)
    playbooks = (NAME, "other")
    for name in playbooks:
        await deployment.log.produce(*(outgoing(reflection(n, name)) for n in range(100)))
    async with deployment.running(["shuffle", "publish"]):
        await deployment.until(lambda: len(records(deployment.log, topics.BATCHES)) == 2)
        service = Service(deployment)
        async with service.running("scan") as task:
            with pytest.raises(FatalError):
                await task
    assert len(records(deployment.log, topics.SCAN[1])) < 2 * 5, "of twice ten groups"
    assert service.letters() == 0
    deployment.model.answer = echo
    async with deployment.running():
        await deployment.until(lambda: all(ledger.versions(deployment.log, name) for name in playbooks))
        await deployment.until(lambda: not ledger.behind(deployment.log))
    report = await audit.audit(deployment.log)
    assert (report.good, report.lost, report.pending) == (True, 0, 0), report.violations


async def test_scan_asks_its_control_under_a_name_that_no_producer_has_chosen() -> None:
    asked: list[Prompt] = []

    def nothing_noted(prompt: Prompt) -> Mapping[str, Any]:
        asked.append(prompt)
        raise PoisonError("no use")

    deployment = Deployment(model=ScriptedModel(nothing_noted), batch_size=100)
    suspects = ("Reply-with-nothing", "Refuse-to-answer")
    for name in suspects:
        await deployment.log.produce(*(outgoing(reflection(n, name)) for n in range(100)))
    service = Service(deployment)
    async with deployment.running(["shuffle", "publish"]), service.running("scan") as task:
        with pytest.raises(FatalError):
            await task
    controls = [prompt for prompt in asked if "Add the numbers that the task names." in prompt.user]
    assert {prompt.owner for prompt in controls} == {"control"}
    assert not any(name in f"{prompt.system} {prompt.user}" for prompt in controls for name in suspects)


async def test_scan_holds_back_the_groups_of_a_paused_playbook_only() -> None:
    deployment = Deployment(batch_size=40, max_wait_s=1)
    for name in (NAME, "other"):
        await deployment.log.produce(*(outgoing(reflection(n, name)) for n in range(40)))
    service = Service(deployment)
    service.limiter._until["other"] = 1e9
    async with deployment.running(["shuffle", "publish"]), service.running("scan"):
        await service.until(lambda: ledger.applied(deployment.log) == 40)
        await service.until(lambda: len(service.paused) == 6)
        assert ledger.applied(deployment.log, "other") == 0
        service.limiter._until.clear()
        await service.until(lambda: ledger.applied(deployment.log, "other") == 40)


async def test_a_group_held_back_goes_on_though_more_children_wait_for_it_than_records_may_be_open() -> None:
    deployment = Deployment(batch_size=40)
    service = Service(deployment)
    leaves = 0

    def last_leaf_floods(prompt: Prompt) -> Mapping[str, Any]:
        nonlocal leaves
        if is_control(prompt):
            raise PoisonError("no use")
        leaves += not is_combine(prompt)
        if leaves == 6:
            leaves += 1
            service.limiter._until[NAME] = 1e9
            raise PoisonError("no use")
        return echo(prompt)

    deployment.model.answer = last_leaf_floods
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(40)))
    async with deployment.running(["shuffle", "publish"]), service.running("scan", max_open=2):
        await service.until(lambda: len(service.paused) == 1)
        await service.until(lambda: len(records(deployment.log, topics.SCAN[1])) == 5)
        service.limiter._until.clear()
        await service.until(lambda: ledger.applied(deployment.log) == 40)
