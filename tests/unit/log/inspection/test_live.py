"""The live picture: what an onlooker sees of windows, trees, versions and offsets."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import permutations

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Outgoing, Record
from combee.core.batching.plan import Base, plan_fork
from combee.core.log.live.picture import BATCHES_KEPT, Picture
from combee.core.log.live.playbooks import MAX_WITHOUT_VERSION
from combee.core.log.live.values import LiveBatch, LivePlaybook, Snapshot
from combee.core.log.live.windows import Rate, Windows
from combee.core.names import identity
from combee.core.names.tenants import Limits, Tenants
from combee.core.playbook.retention import warnings
from combee.core.playbook.spend import SpendPolicy
from combee.log.inspection import live
from combee.log.inspection.lag import INPUTS
from combee.log.inspection.live import FOLLOWED, STAGES, Live
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Message, Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.control import BatchSize
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.plan import Branch, BranchSettings, PlanSettings
from combee_schemas.playbook import AppliedBatch, Audit, Playbook, Spend
from combee_schemas.scan import Partial, Update
from combee_schemas.topics import AnyTopic
from support import ledger
from support.clock import ManualClock
from support.deployment import Deployment
from support.flat import changed, flat
from support.gateway import GuardedLog, asked, published
from support.ledger import NAME, outgoing, reflection
from support.waiting import until

pytestmark = pytest.mark.usefixtures("quick_polls")

BATCH = identity.batch_id("a", 1)
WIDTHS = (3, 1)
MANIFEST = flat(
    Batch, batch_id=BATCH, playbook="a", sequence=1, seed=1, copies=2, widths=WIDTHS, base_version=0, reason="size",
    members=tuple(Member(offset=n, reflection_id=f"r{n}") for n in range(4)), through_offset=3, batch_size=4,
    shape_reason="because", closed_at_ms=1_000,
)  # fmt: skip
PLAN = MANIFEST.plan
VERSION = flat(
    Playbook, name="a", version=1, origin="batch", batch_id=BATCH, batch_sequence=1, reflections=4, through_offset=3,
    audit=Audit(new=3, dropped=1), retention_recent=(0.75,), closed_at_ms=1_000, created_at_ms=3_000,
)  # fmt: skip


def partial(index: int) -> Partial:
    return flat(
        Partial, plan=PLAN, node_id=identity.node_id(BATCH, 0, index), parent_id=identity.node_id(BATCH, 1, 0),
        level=0, index=index, status="ok", usage=Usage(tokens_in=7),
    )  # fmt: skip


UPDATE = flat(Update, plan=PLAN, node_id=identity.node_id(BATCH, 1, 0), status="ok")


def picture(*messages: Message) -> Picture:
    seen = Picture(batch_size=40)
    for message in messages:
        seen.take(message, 2_000)
    return seen


def batch(seen: Picture) -> LiveBatch:
    found = seen.batch(BATCH)
    assert found
    return found


def states(seen: Picture) -> list[str]:
    return [node.state for node in batch(seen).nodes]


def without(child: int, update: Update) -> Update:
    return update.model_copy(update={"result": update.result.model_copy(update={"left_out": (child,)})})


def test_a_group_that_the_root_left_out_is_shown_so_whatever_comes_late() -> None:
    seen = picture(MANIFEST, partial(0), partial(2), without(1, UPDATE))
    assert states(seen) == ["done", "left_out", "done", "done"]
    seen.take(partial(1), 3_000)
    assert states(seen) == ["done", "left_out", "done", "done"]
    assert all(node.is_settled for node in batch(seen).nodes)


def test_of_a_sub_tree_that_was_left_out_every_node_is() -> None:
    manifest = changed(MANIFEST, widths=(4, 2, 1))
    update = without(1, changed(UPDATE, plan=manifest.plan))
    assert states(picture(manifest, update)) == [
        *["ready"] * 2,
        *["left_out"] * 2,
        "waiting",
        "left_out",
        "done",
    ]


def only(seen: Picture) -> LivePlaybook:
    (found,) = seen.snapshot(5_000).playbooks
    return found


def test_a_node_is_ready_when_its_children_are_done() -> None:
    assert states(picture(MANIFEST)) == ["ready", "ready", "ready", "waiting"]
    assert states(picture(MANIFEST, partial(0), partial(2))) == ["done", "ready", "done", "waiting"]
    assert states(picture(MANIFEST, *map(partial, range(3)))) == ["done", "done", "done", "ready"]
    assert states(picture(MANIFEST, *map(partial, range(3)), UPDATE)) == ["done"] * 4


def test_nodes_name_their_parent_and_what_they_cost() -> None:
    first, *_, root = batch(picture(MANIFEST, partial(0))).nodes
    assert (first.parent_id, first.tokens_in, first.at_ms) == (root.node_id, 7, 2_000)
    assert root.parent_id == ""


def test_topics_may_be_read_in_any_order() -> None:
    messages: list[Message] = [MANIFEST, partial(1), UPDATE, VERSION]
    seen = [batch(picture(*order)) for order in permutations(messages)]
    assert seen == seen[:1] * len(seen)
    assert (seen[0].version, seen[0].done_at_ms, seen[0].copies) == (1, 3_000, 2)


def test_the_first_result_of_a_node_counts() -> None:
    twice = picture(MANIFEST, partial(0), changed(partial(0), status="failed"))
    assert batch(twice).nodes[0].status == "ok"


def test_a_result_that_belongs_to_no_node_changes_no_tree() -> None:
    assert states(picture(MANIFEST, partial(9))) == states(picture(MANIFEST))
    absurd = PLAN.model_copy(update={"widths": (1, 5), "batch_id": "b-absurd"})
    assert picture(UPDATE.model_copy(update={"plan": absurd})).batch("b-absurd") is None


def test_a_window_holds_what_no_manifest_covers() -> None:
    seen = picture()
    for offset in range(6):
        seen.arrived("a", offset, 100 + offset)
    assert (only(seen).waiting, only(seen).waiting_since_ms) == (6, 100)
    seen.take(MANIFEST, 2_000)
    seen.arrived("a", 2, 100)
    assert (only(seen).waiting, only(seen).waiting_since_ms) == (2, 104)


def seconds_for_letters(count: int, repeats: int) -> float:
    """Return the processor time until a window's reflections are dead letters, the shortest of some."""
    times = []
    for _ in range(repeats):
        windows = Windows()
        for offset in range(count):
            windows.arrived("a", offset, 100)
        began = time.thread_time()
        for offset in reversed(range(count)):
            windows.dead_lettered("a", offset)
        times.append(time.thread_time() - began)
        assert windows.count("a") == 0
    return min(times)


def test_letters_take_processor_time_in_proportion_to_their_number() -> None:
    def growth(repeats: int) -> float:
        return seconds_for_letters(8_000, repeats) / seconds_for_letters(1_000, repeats)

    # 8 times as many; quadratic is 64 times the time. Only what looks like it is measured closely.
    assert growth(1) < 24 or growth(3) < 24


def test_lines_without_a_version_are_bounded_and_the_newest_stay() -> None:
    seen = picture(VERSION)
    for number in range(MAX_WITHOUT_VERSION + 100):
        seen.arrived(f"invented-{number}", number, 100)
        seen.arrived("waits", number, 100)
    assert seen.snapshot(0).playbooks_total == MAX_WITHOUT_VERSION + 1
    assert seen.windows.count("invented-0") == 0
    assert seen.windows.count("waits") == MAX_WITHOUT_VERSION + 100
    seen.take(VERSION.model_copy(update={"name": "waits"}), 2_000)
    for number in range(MAX_WITHOUT_VERSION + 1):
        seen.arrived(f"other-{number}", number, 100)
    assert seen.snapshot(0).playbooks_total == MAX_WITHOUT_VERSION + 2
    assert seen.windows.count("waits")


FORKED = Branch(of="a", version=1, sequence=1, settings=BranchSettings(batch_size=5))
FORK = plan_fork(
    "a@x",
    1,
    FORKED,
    settings=PlanSettings(),
    base=Base(version=0, sequence=0),
    command_id="fork",
    through_offset=3,
    closed_at_ms=1_500,
)
LINE = VERSION.model_copy(
    update={"name": "a@x", "branch": FORKED, "batch": AppliedBatch(plan=FORK.plan), "created_at_ms": 1_600}
)
ENDED = LINE.model_copy(update={"version": 2, "origin": "delete", "branch": None, "batch": None})


def waiting_of(seen: Picture) -> dict[str, int]:
    return {book.name: book.waiting for book in seen.snapshot(0).playbooks}


def test_a_branchs_window_holds_what_its_own_manifests_do_not_cover() -> None:
    for known in (FORK, LINE):
        seen = picture()
        for offset in range(6):
            seen.arrived("a", offset, 100)
        seen.take(known, 2_000)
        seen.take(MANIFEST, 2_000)
        assert waiting_of(seen) == {"a": 2, "a@x": 2}
        seen.arrived("a", 6, 100)
        seen.acknowledged("a", 7, 100)
        seen.take(changed(MANIFEST, sequence=2, batch_id=identity.batch_id("a", 2), through_offset=7), 2_000)
        assert waiting_of(seen) == {"a": 0, "a@x": 4}
        assert [seen.windows.newest(line) for line in ("a", "a@x")] == [7, 7]
        letter = {"service": "scan", "reason": "x", "key": b"a"}
        seen.take(DeadLetter(origin_topic="reflections", origin_partition=0, origin_offset=5, **letter), 0)
        assert waiting_of(seen)["a@x"] == 3


def test_nothing_waits_for_a_branch_that_has_ended_whatever_is_read_first() -> None:
    for order in permutations([FORK, LINE, ENDED]):
        seen = picture(*order)
        seen.deleted("a@x")
        seen.arrived("a", 9, 100)
        assert waiting_of(seen) == {"a": 1}


def test_branches_follow_their_playbook_and_keep_their_own_size() -> None:
    older = changed(VERSION, name="b", created_at_ms=2_000)
    late = LINE.model_copy(update={"created_at_ms": 9_000})
    seen = picture(
        older, VERSION, late, BatchSize(playbook="a@x", batch_size=54, reason="r", decided_at_ms=9)
    )
    books = seen.snapshot(0).playbooks
    assert [book.name for book in books] == ["a", "a@x", "b"]
    assert [(book.batch_size, book.branch) for book in books[:2]] == [(40, None), (5, FORKED)]


def test_a_line_that_the_common_cap_pauses_says_why_and_what_was_spent_yesterday_is_not_todays() -> None:
    spent = Spend(day=0, tokens=600, cap_tokens=1000)
    seen = picture(
        VERSION.model_copy(update={"spend": spent}),
        LINE.model_copy(update={"spend": Spend(day=0, tokens=400)}),
    )
    assert ["1,000 of 1,000 tokens" in book.paused for book in seen.snapshot(0).playbooks] == [True, True]
    told = [
        (book.paused, book.spend_tokens) for now_ms in (0, DAY_MS) for book in seen.snapshot(now_ms).playbooks
    ]
    assert [spent for _, spent in told] == [600, 400, 0, 0]
    assert [bool(why) for why, _ in told] == [True, True, False, False]


def test_a_tenants_limit_and_the_cap_of_the_settings_pause_a_line_as_in_the_status() -> None:
    spent = VERSION.model_copy(update={"spend": Spend(day=0, tokens=600)})
    limited = Picture(batch_size=40, tenants=Tenants({"a": Limits(daily_tokens=500)}))
    capped = Picture(batch_size=40, spending=SpendPolicy(daily_tokens=500))
    for seen in (limited, capped):
        seen.take(spent, 2_000)
    assert only(limited).paused == "tenant a: 600 of 500 tokens spent today by all its playbooks"
    assert only(capped).paused.startswith("600 of 500 tokens spent today")


async def test_whoever_looks_late_knows_what_waits_for_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reflections are read once it is known which branches there are."""
    deployment = Deployment(batch_size=4)
    await published(
        deployment.log, changed(VERSION, name=NAME), changed(LINE, name=f"{NAME}@x", through_offset=-1)
    )
    await deployment.log.produce(*(outgoing(reflection(n)) for n in range(6)))
    follow, read = Live._follow, asyncio.Event()

    async def late(self: Live, topic: AnyTopic, take: Callable[[Record], None]) -> None:
        if topic is topics.PLAYBOOKS:
            await read.wait()
        await follow(self, topic, take)

    monkeypatch.setattr(Live, "_follow", late)
    watcher = Live(deployment.log, deployment.clock, batch_size=4)
    work = asyncio.create_task(watcher.run())
    try:
        await until(lambda: not watcher._behind - {"playbooks", "reflections"})
        read.set()
        await watcher.wait_current(10.0)
        assert waiting_of(watcher.picture)[f"{NAME}@x"] == 6
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def test_a_playbook_shows_its_versions_its_size_and_why() -> None:
    found = only(picture(VERSION, BatchSize(playbook="a", batch_size=54, reason="plateau", decided_at_ms=9)))
    assert (found.version, found.retention, found.batch_size, found.batch_size_reason) == (
        1,
        0.75,
        54,
        "plateau",
    )
    assert [(one.version, one.seconds, one.batch_id) for one in found.versions] == [(1, 2.0, BATCH)]
    assert [one.batch_size for one in found.sizes] == [54]


def test_a_version_shows_what_became_of_its_reflections() -> None:
    audit = Audit(new=2, known=1, omitted=1)
    made = changed(VERSION, audit=audit, omitted_recent=(0.0, 0.25))
    found = only(picture(made))
    assert (found.omitted, found.omitted_recent, found.versions[0].audit) == (0.25, (0.0, 0.25), audit)
    assert (found.versions[0].retention, found.warnings) == (0.75, {})
    without = only(picture(changed(VERSION, audit=None)))
    assert (without.omitted, without.versions[0].audit) == (None, None)


def test_a_playbook_shows_the_warnings_about_its_last_batch() -> None:
    claimed = changed(VERSION, audit=Audit(new=100, said=97, verified=51, carried=49))
    assert only(picture(claimed)).warnings == warnings(claimed)
    assert warnings(claimed).keys() == {"unverified"}


def test_a_rollback_is_a_version_without_reflections_or_retention() -> None:
    back = VERSION.model_copy(update={"version": 2, "origin": "rollback", "batch": None})
    found = only(picture(VERSION, back))
    told = [(one.reflections, one.batch_id, one.retention) for one in found.versions]
    assert told == [(4, BATCH, 0.75), (0, "", None)]
    assert found.retention == 0.75, "as the status has it: that of the last batch"


def test_a_deleted_playbook_is_not_shown_whatever_order_its_remains_are_read_in() -> None:
    remains = VERSION.model_copy(update={"version": 2, "origin": "delete", "batch": None, "entries": ()})
    for order in permutations([MANIFEST, VERSION, remains]):
        seen = picture(*order)
        seen.deleted("a")
        seen.past(VERSION)
        assert seen.snapshot(0).playbooks == ()


def test_a_playbook_without_a_version_is_shown_while_it_waits_for_one() -> None:
    assert only(picture(MANIFEST)).version == 0
    waiting = picture()
    waiting.arrived("a", 0, 100)
    assert only(waiting).waiting == 1


def test_only_the_newest_batches_are_kept() -> None:
    many = [
        changed(MANIFEST, batch_id=identity.batch_id("a", n), sequence=n) for n in range(1, BATCHES_KEPT + 2)
    ]
    seen = picture(*many)
    assert seen.batch(many[0].plan.batch_id) is None
    assert seen.snapshot(0).batches[0].sequence == BATCHES_KEPT + 1


def test_dead_letters_are_counted_and_the_newest_shown_first() -> None:
    letters = [
        DeadLetter(origin_topic="scan.0", origin_partition=1, origin_offset=n, service="scan", reason=str(n))
        for n in range(3)
    ]
    shown = picture(*letters).snapshot(0)
    assert shown.dead_letters == 3
    assert shown.dead_letters_recent[0].origin == "scan.0[1]@2"


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate()
    assert rate.per_s == 0
    for second in range(30):
        rate.add(1_000 if second >= 15 else 0, second * 1000)
    assert rate.per_s == 0
    rate.add(1_050, 30_000)
    assert rate.per_s == 5


def test_nothing_changes_the_revision_unless_something_changed() -> None:
    seen = picture()
    seen.stage("updates", 5, 1_000)
    before = seen.revision
    seen.stage("updates", 5, 2_000)
    assert seen.revision == before
    seen.stage("updates", 6, 3_000)
    assert seen.revision > before


# ---- on a deployment


@asynccontextmanager
async def watching(deployment: Deployment) -> AsyncIterator[Live]:
    looking = Live(deployment.log, deployment.clock, batch_size=deployment.settings.batch_size)
    task = asyncio.create_task(looking.run())
    try:
        await looking.wait_current(5)
        yield looking
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def deployment() -> Deployment:
    return Deployment(batch_size=10)


async def test_whoever_looks_sees_a_batch_become_a_version(deployment: Deployment) -> None:
    async with deployment.running(), watching(deployment) as looking:
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(12)))
        await deployment.until(lambda: any(one.version for one in looking.picture.snapshot(0).batches))
        await deployment.until(lambda: looking.picture.snapshot(0).playbooks[0].version == 1)
    shown = looking.picture.snapshot(0)
    assert {node.state for node in shown.batches[0].nodes} == {"done"}
    assert (shown.playbooks[0].waiting, shown.playbooks[0].version) == (2, 1)


async def test_whoever_looks_late_sees_the_same(deployment: Deployment) -> None:
    async with deployment.running():
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(12)))
        await deployment.until(lambda: ledger.applied(deployment.log, NAME) == 10)
        async with watching(deployment) as looking:
            shown = looking.picture.snapshot(0)
    assert (shown.playbooks[0].waiting, shown.playbooks[0].version) == (2, 1)
    assert {node.state for node in shown.batches[0].nodes} == {"done"}


async def test_changes_wake_whoever_waits(deployment: Deployment) -> None:
    async with watching(deployment) as looking:
        before = looking.picture.revision
        waiting = asyncio.create_task(looking.changed(before, 5))
        await deployment.log.produce(outgoing(reflection(1)))
        assert await waiting > before
        now = looking.picture.revision
        assert await looking.changed(now, 0.01) == now


class FollowedLog(MemoryLog):
    """A log that knows which topics are followed, and whose progress was asked for."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), partitions=1)
        self.followed: list[str] = []
        self.groups: set[str] = set()

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        self.groups.add(group)
        return await super().committed(group, topic)

    async def follow(
        self, topic: str, starts: Mapping[int, int] | None = None
    ) -> AsyncGenerator[Sequence[Record] | None, None]:
        self.followed.append(topic)
        try:
            async for records in super().follow(topic, starts):
                yield records
        finally:
            self.followed.remove(topic)


async def test_a_gateway_at_which_nobody_looks_reads_no_more_than_what_agents_read() -> None:
    log = FollowedLog()
    async with asked(log) as gateway:
        await log.produce(outgoing(reflection(1)))
        await gateway.knows(VERSION)
        written = await gateway.client.post("/v1/reflections", json={"playbook": NAME, "key_insight": "k"})
        assert written.status_code == 202
        assert sorted(log.followed) == ["history", "labels", "playbooks"]
        assert (gateway.context.live.picture.windows.count(NAME), written.status_code) == (0, 202)
        assert log.groups == set()
        shown = (await gateway.client.get("/v1/status")).json()
        assert log.groups == set(INPUTS)
        assert {one["name"]: one["waiting"] for one in shown["playbooks"]} == {"a": 0, NAME: 2}
        assert {one["name"] for one in shown["stages"]} == {topic.name for topic in STAGES}


async def test_who_looks_after_a_quiet_time_sees_what_happened_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "LOOK_UP_EVERY_S", 0.01)
    log, clock = FollowedLog(), ManualClock()
    looking = Live(log, clock, batch_size=10)
    task = asyncio.create_task(looking.run())
    await log.produce(outgoing(reflection(1)))
    assert (await looking.seen()).windows.count(NAME) == 1
    clock.advance(live.QUIET_S)
    await until(lambda: looking.picture.windows.count(NAME) == 0)
    assert log.followed == []
    looking.acknowledged(NAME, 1, 1)
    await log.produce(outgoing(reflection(2)))
    await published(log, VERSION)
    seen = await looking.seen()
    assert (seen.windows.count(NAME), seen.windows.newest(NAME)) == (2, 1)
    assert {one.name for one in seen.snapshot(0).playbooks} == {NAME, "a"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_keys_that_are_no_playbooks_names_are_no_lines(deployment: Deployment) -> None:
    async with watching(deployment) as looking:
        for key in (b"two words", b"a//b", b"\xff", b"x" * 201):
            await deployment.log.produce(Outgoing(topic=topics.REFLECTIONS.name, key=key, value=b"-"))
        await deployment.log.produce(*(outgoing(reflection(n)) for n in range(2)))
        await deployment.until(lambda: NAME in {one.name for one in looking.picture.snapshot(0).playbooks})
        await deployment.until(lambda: looking.picture.windows.count(NAME) == 2)
        assert looking.picture.snapshot(0).playbooks_total == 1


async def test_what_cannot_be_read_is_passed_over(deployment: Deployment) -> None:
    async with watching(deployment) as looking:
        for topic in topics.TOPICS:
            await deployment.log.produce(Outgoing(topic=topic.name, key=b"a", value=b"garbage"))
            await deployment.log.produce(Outgoing(topic=topic.name, key=None, value=None))
        await deployment.log.produce(outgoing(reflection(1)))
        await deployment.until(lambda: NAME in {one.name for one in looking.picture.snapshot(0).playbooks})


# ---- rights


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETRY_S", "LOOK_UP_EVERY_S", "SURE_S"):
        monkeypatch.setattr(live, name, 0.01)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "topic", [one for one in topics.TOPICS if one in (*FOLLOWED, *STAGES)], ids=lambda topic: topic.name
)
async def test_a_topic_that_must_not_be_read_is_named_and_the_rest_of_the_picture_goes_on(
    topic: topics.AnyTopic,
) -> None:
    log = GuardedLog()
    log.deny(topic.name)
    seeing = Live(log, SystemClock(), batch_size=10)
    task = asyncio.create_task(seeing.run())
    await seeing.wait_current(5)
    await log.produce(outgoing(reflection(1)))
    await published(log, VERSION)
    names = {topic.name, f"offsets of {topic.name}"} & {
        *(one.name for one in (*FOLLOWED, topics.REFLECTIONS)),
        *(f"offsets of {one.name}" for one in STAGES),
    }
    await until(lambda: names <= seeing.picture.snapshot(0).unreadable.keys())
    rest = {NAME} if topic == topics.PLAYBOOKS else {"a"} if topic == topics.REFLECTIONS else {"a", NAME}
    await until(lambda: rest <= {one.name for one in seeing.picture.snapshot(0).playbooks})
    assert "TopicAuthorizationFailedError" in str(seeing.picture.snapshot(0).unreadable)
    log.deny()
    await until(lambda: not seeing.picture.snapshot(0).unreadable)
    await until(lambda: {"a", NAME} <= {one.name for one in seeing.picture.snapshot(0).playbooks})
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.usefixtures("at_once")
async def test_a_broker_that_accepts_questions_and_answers_none_is_one_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, frozen = MemoryLog(SystemClock()), asyncio.Event()
    ends = log.ends

    async def slow(topic: str) -> Mapping[int, int]:
        if frozen.is_set():
            await asyncio.sleep(60)
        return await ends(topic)

    monkeypatch.setattr(log, "ends", slow)
    seeing = Live(log, SystemClock(), batch_size=10)
    task = asyncio.create_task(seeing.run())
    await seeing.wait_current(5)
    assert seeing.unanswered_since_ms is None
    monkeypatch.setattr(live, "LOOKED_S", 0.01)
    frozen.set()
    await until(lambda: seeing.unanswered_since_ms is not None)
    frozen.clear()
    await until(lambda: seeing.unanswered_since_ms is None)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_all_who_look_share_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    snapshot = Picture.snapshot

    def counted(picture: Picture, now_ms: int) -> Snapshot:
        made.append(picture.revision)
        return snapshot(picture, now_ms)

    monkeypatch.setattr(Picture, "snapshot", counted)
    clock = ManualClock()
    looking = Live(MemoryLog(clock), clock, batch_size=10)
    first = [looking.shared() for _ in range(20)]
    looking.picture.arrived("p", 1, 1)
    soon = [looking.shared() for _ in range(20)]
    clock.advance(1.0)
    later = [looking.shared() for _ in range(20)]
    assert len({id(one) for one in (*first, *soon)}) == 1
    assert {one.revision for one in later} == {1}
    assert len(made) == 2


# ---- batches that went beyond a reflection that waits


def test_what_a_batch_took_beyond_one_that_waits_does_not_wait() -> None:
    windows = Windows()
    for offset in range(6):
        windows.arrived("a", offset, offset)
    windows.closed("a", 1, members=(0, 1, 4))
    assert (windows.count("a"), windows.since_ms("a")) == (3, 2)
    windows.forget()
    for offset in range(2, 6):
        windows.arrived("a", offset, offset)
    assert windows.count("a") == 3
    windows.closed("a", 5, members=(2, 3, 5))
    assert windows.count("a") == 0
