"""``combee replay --variant``: what is refused before anything is asked or written, and one run on the memory log."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import FatalError, Outgoing
from combee.assembly.local.stack import StackOptions, child_environment
from combee.cli.replay.recorded import Range, recording
from combee.cli.replay.report import table
from combee.cli.replay.variant_run import RunResult, VariantRun
from combee.cli.replay.variants import Job, _planned, _Run
from combee.cli.replay.verb import FAR_MS
from combee.cli.shared.console import print_whole
from combee.core.log.replaying.selection import Selection
from combee.core.log.replaying.steps import as_batched
from combee.core.log.replaying.variant import Variant, parse
from combee.log.inspection.audit import audit
from combee.log.inspection.tracker import StalledError
from combee.log.reports.replay import Replayed, run_report
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group
from support import ledger
from support.deployment import Deployment
from support.failpoints.points import CrashError, CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo, is_combine
from support.reading import learned_from, run

pytestmark = pytest.mark.usefixtures("quick_polls")
SAME = Variant(name="same")


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    return learned_from(monkeypatch)


@pytest.mark.usefixtures("learned")
@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--variant", "a:nope=1"), 2, "a variant cannot change 'nope'"),
        (("--variant", "a", "--variant", "a:copies=1"), 2, "two variants have the same name"),
        (("--variant", "a:without=colour"), 2, "selects nothing"),
        (("--variant", "a", "--without", "colour"), 2, "selects nothing"),
        (("--variant", "a", "--versions", "9"), 2, "FIRST..LAST"),
        (("--variant", "a", "--versions", "4..3"), 2, "FIRST..LAST"),
        (("--variant", "a", "--since", "yesterday"), 2, "is not a time"),
        (("--variant", "a:copies=99", "--simulated"), 2, "COMBEE_COPIES"),
        (("--versions", "1..2"), 2, "add --variant NAME"),
        (("--seeds", "2"), 2, "add --variant NAME"),
        (("--yes",), 2, "add --variant NAME"),
        (("--variant", "a", "--ask"), 2, "leave --ask out"),
        (("--variant", "a", "--versions", "8..9", "--simulated"), 1, "has no version in that range"),
        (("--variant", "a", "--since", "2038-01-01", "--simulated"), 1, "no reflection that counted"),
        (("--variant", "a", "--simulated"), 1, "--yes agrees to the cost"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_refused_before_anything_starts(
    options: tuple[str, ...], code: int, says: str
) -> None:
    told = run("replay", NAME, "--to", "elsewhere", *options)
    assert told.exit_code == code
    assert says in " ".join((told.stdout + told.stderr).replace("│", " ").split())


async def test_a_recording_has_what_counted_in_a_range_less_what_is_left_out(learned: Deployment) -> None:
    whole = await recording(learned.log, NAME, Range())
    assert [arrival.reflection_id for arrival in whole.arrivals] == [f"r-{n}" for n in range(20)]
    second = await recording(learned.log, NAME, Range(versions=(2, 2)))
    assert {arrival.sequence for arrival in second.arrivals} == {2}
    some = await recording(learned.log, NAME, Range(offsets=(3, 7)), [Selection("id", "r-4")])
    assert [arrival.reflection_id for arrival in some.arrivals] == ["r-3", "r-5", "r-6"]


async def expired(learned: Deployment, first: int) -> int:
    """Let the reflections before ``first`` expire; return when that one came."""
    number = await learned.log.partition_for(topics.REFLECTIONS.name, NAME.encode())
    partition = learned.log._store.partitions(topics.REFLECTIONS.name)[number]
    partition.first = first
    return next(iter(partition.records(first, first + 1))).timestamp_ms


@pytest.mark.parametrize("by_time", [False, True])
async def test_an_expired_range_is_refused_with_the_date_it_begins(
    learned: Deployment, *, by_time: bool
) -> None:
    kept_since = await expired(learned, 5)
    wanted = Range(times_ms=(kept_since - 1, FAR_MS)) if by_time else Range()
    with pytest.raises(
        FatalError, match=r"5 reflections .* expired: they are kept from offset 5 on, from 20\d\d-"
    ):
        await recording(learned.log, NAME, wanted)


async def test_a_range_that_begins_with_what_is_kept_is_replayed(learned: Deployment) -> None:
    wanted = Range(times_ms=(await expired(learned, 5), FAR_MS))
    assert len((await recording(learned.log, NAME, wanted)).arrivals) == 15


async def replayed(
    source: MemoryLog, target: Deployment, done: RunResult, timeout_s: float = 20
) -> RunResult:
    async with target.running():
        return await VariantRun(source, target.log, NAME, timeout_s=timeout_s).run(done, None)


def shadow() -> Deployment:
    return Deployment(batch_size=100, max_wait_s=1e9)


async def planned(learned: Deployment) -> RunResult:
    batches = as_batched((await recording(learned.log, NAME, Range())).arrivals)
    return RunResult(variant=SAME, seed=0, prefix="elsewhere", batches=batches)


async def test_a_variant_that_changes_nothing_learns_the_same_and_production_is_only_read(
    learned: Deployment,
) -> None:
    before = {topic.name: dict(await learned.log.ends(topic.name)) for topic in topics.TOPICS}
    groups = {group: dict(places) for group, places in learned.log._store.committed.items()}
    target = shadow()
    done = await replayed(learned.log, target, await planned(learned))
    original = ledger.latest(learned.log)
    assert done.newest is not None
    assert {one.content for one in done.newest.entries} == {one.content for one in original.entries}
    assert [version.reflections for version in done.versions] == [10, 10]
    assert {topic.name: dict(await learned.log.ends(topic.name)) for topic in topics.TOPICS} == before
    assert {group: dict(places) for group, places in learned.log._store.committed.items()} == groups


async def test_what_was_stopped_goes_on_where_it_was(learned: Deployment) -> None:
    target = shadow()
    done = await planned(learned)
    half = RunResult(variant=SAME, seed=0, prefix="elsewhere", batches=done.batches[:1])
    await replayed(learned.log, target, half)
    calls = target.model.calls
    whole = await replayed(learned.log, target, done)
    again = await replayed(learned.log, target, await planned(learned))
    assert [version.reflections for version in whole.versions] == [10, 10]
    assert len(again.versions) == 2
    assert target.model.calls < 2 * calls + 2, "what was done is not done again"
    assert len(ledger.batches(target.log)) == 2


async def test_a_prefix_that_holds_something_else_is_refused(learned: Deployment) -> None:
    target = shadow()
    await target.log.produce(outgoing(reflection(77)))
    with pytest.raises(FatalError, match=r"r-77.*choose another --to"):
        await replayed(learned.log, target, await planned(learned))


async def test_a_prefix_that_holds_the_variant_with_other_settings_is_refused(learned: Deployment) -> None:
    target, wanted = shadow(), await planned(learned)
    await replayed(learned.log, target, wanted)
    other = VariantRun(learned.log, target.log, NAME, timeout_s=5, made_with="other")
    with pytest.raises(FatalError, match="with other settings, or another model: choose another --to"):
        await other.is_complete(wanted.batches)


async def test_a_prefix_that_holds_the_variant_with_other_batches_is_refused(learned: Deployment) -> None:
    target, wanted = shadow(), await planned(learned)
    await replayed(learned.log, target, wanted)
    again = VariantRun(learned.log, target.log, NAME, timeout_s=5)
    assert await again.is_complete(wanted.batches)
    halves = [half for batch in wanted.batches for half in (batch[:5], batch[5:])]
    whole = [tuple(arrival for batch in wanted.batches for arrival in batch)]
    for others in (halves, whole):
        with pytest.raises(FatalError, match="with batches of another size or range: choose another --to"):
            await again.is_complete(others)


async def test_a_run_without_services_ends_in_time(learned: Deployment) -> None:
    with pytest.raises(StalledError, match="--timeout waits longer"):
        await VariantRun(learned.log, shadow().log, NAME, timeout_s=0.1).run(await planned(learned), None)


async def runs_of(learned: Deployment, *variants: str, seeds: int = 1) -> list[_Run]:
    """Return the planned runs of variants, as the command line writes these."""
    job = Job(
        name=NAME, settings=load_settings(), to="x", range=Range(), seeds=range(seeds), without=(), base=None,
        variants=[parse(text) for text in variants], simulated=True, sim_options=(), questions=(),
        simulated_answers=None, timeout_s=1, agreed=True,
    )  # fmt: skip
    original = await recording(learned.log, NAME, Range())
    return [run async for run in _planned(job, learned.log, original)]


async def test_each_seed_and_each_variant_is_dealt_otherwise_and_kept_apart(learned: Deployment) -> None:
    variants = ("same", "one:copies=1", "own:salt=mine", "law:sim.law=lessons_only")
    runs = await runs_of(learned, *variants, seeds=2)
    assert len({run.settings.kafka.topic_prefix for run in runs}) == len({run.made_with for run in runs}) == 8
    salts = {run.settings.batch.salt for run in runs if run.variant.name == "own"}
    assert salts == {"mine", "minereplay-1"}
    deals = [await dealt(learned, run.settings.batch.salt) for run in runs[:2]]
    assert deals[0] != deals[1]
    for deal in deals:
        assert sorted(offset for group in deal for offset in group) == sorted([*range(10), *range(10)])


async def test_a_variant_may_ask_for_other_groups_and_its_estimate_knows_them(learned: Deployment) -> None:
    (run,) = await runs_of(learned, "five:groups=5")
    assert run.settings.batch.groups == 5
    assert run.estimate.calls == 6 * len(run.batches)


async def test_a_variant_that_cannot_make_a_difference_is_told_before_the_cost(learned: Deployment) -> None:
    texts = {
        "same": False,
        "two:copies=2": True,
        "one:copies=1": False,
        "small:small_batches=paper": True,  # its batches have ten
        "ten:batch_size=10": True,
        "five:batch_size=5": False,
        "nobody:without=source:nobody": True,
        "gone:without=id:r-1": False,
        "own:salt=mine": False,
        "law:sim.law=lessons_only": False,
    }
    needless = [run.is_needless for run in await runs_of(learned, *texts, seeds=2)]
    assert (needless[::2], needless[1::2]) == ([*texts.values()],) * 2


@pytest.mark.usefixtures("learned")
def test_which_variant_it_is_is_said_before_anything_starts() -> None:
    told = run(
        *("replay", NAME, "--to", "elsewhere", "--simulated"),
        *("--variant", "two:copies=2", "--variant", "one:copies=1"),
    )
    assert told.exit_code == 1  # nobody agreed to the cost
    assert "variant two cannot make a difference" in told.stderr
    assert "variant one" not in told.stderr


async def test_a_cap_of_the_environment_holds_no_variant_back(
    learned: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMBEE_DAILY_TOKENS", "5")
    (run,) = await runs_of(learned, "same")
    options = StackOptions(settings=run.settings, bootstrap_servers="b:1", folder=Path("unused"))
    assert int(child_environment(options)["COMBEE_DAILY_TOKENS"]) > 1e12


async def dealt(learned: Deployment, salt: str) -> list[list[int]]:
    """Return the groups of the first batch that a replay with this salt deals, two copies of each reflection."""
    target, wanted = Deployment(batch_size=100, max_wait_s=1e9, copies=2, salt=salt), await planned(learned)
    await replayed(learned.log, target, replace(wanted, batches=wanted.batches[:1]))
    groups = ledger.messages(target.log, topics.SCAN[0], Group)
    return [[member.offset for member in group.members] for group in sorted(groups, key=lambda g: g.index)]


def test_a_row_says_what_came_of_a_run_beside_the_original(
    learned: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = ledger.versions(learned.log)

    def row(name: str, seed: int | None) -> Replayed:
        newest = versions[-1] if seed is None else versions[0]
        return Replayed(
            variant=name, seed=seed, prefix=name, versions=versions, newest=newest, staleness_s=2.0,
            seconds=1.0, points=None,
        )  # fmt: skip

    original = row("original", None)
    rows = [run_report(one, original) for one in (original, row("half", 0), row("half", 1))]
    shown = rows[0].fields()
    assert shown["entries"] == {"count": 20, "kept": 20, "added": [], "gone": [], "changed": []}
    assert shown["audit"] == rows[0].audit.model_dump()
    assert "score" not in shown
    assert (rows[1].entries.kept, len(rows[1].entries.gone)) == (10, 10)
    assert table(rows).row_count == 2

    scored = {"score": 0.53, "difference": 0.26, "difference_low": 0.21, "difference_high": 0.31}
    spent = {"tokens": {"in": 171_900_000, "cached": 72_248_000, "out": 10_981_000}}
    print_whole(table([row.model_copy(update={**scored, **spent}) for row in rows]))
    printed = capsys.readouterr().out
    assert "…" not in printed, "no figure is cut off"
    assert {"171,900,000", "72,248,000", "10,981,000"} <= set(printed.split())


class TornLog(FaultInjectingLog):
    """A log whose process dies with half of a write acknowledged."""

    async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
        half = len(outgoing) // 2
        first = await super().produce(*outgoing[:half]) if half else ()
        return [*first, *await super().produce(*outgoing[half:])]


def lumping(prompt: Prompt) -> Mapping[str, Any]:
    """Combine to the first half of the proposals, and name all as its sources."""
    whole = dict(echo(prompt))
    operations = whole["operations"]
    if is_combine(prompt):
        sources = [n for one in operations for n in one["sources"]]
        operations = [{**one, "sources": sources} for one in operations[: len(operations) // 2]]
    return {**whole, "operations": operations}


async def test_a_replay_in_the_paper_s_way_shows_what_the_check_keeps(learned: Deployment) -> None:
    kept = {}
    for carry in (True, False):
        target = Deployment(
            batch_size=100, max_wait_s=1e9, carry=carry, trust="lab", model=ScriptedModel(lumping)
        )
        done = await replayed(learned.log, target, await planned(learned))
        assert done.newest is not None
        assert done.newest.audit is not None
        kept[carry] = len(done.newest.entries), done.newest.audit.said, done.newest.audit.verified
    assert kept == {True: (20, 10, 5), False: (10, 10, 0)}


def begun_with(learned: Deployment) -> Playbook:
    return ledger.versions(learned.log)[0].model_copy(
        update={"entries": ledger.latest(learned.log).entries[:3]}
    )


async def killed_at(
    learned: Deployment, target: Deployment, base: Playbook, at: int | None = None
) -> list[str]:
    """Replay until its process dies at one of the gaps around its writes; return those that it passed."""
    failpoint = CrashFailpoint(at)
    async with target.running():
        shadow = VariantRun(learned.log, TornLog(target.log, failpoint), NAME, timeout_s=20)
        with nullcontext() if at is None else pytest.raises(CrashError):
            await shadow.run(await planned(learned), base)
    return failpoint.points


async def test_killed_at_any_write_the_same_command_comes_to_the_same(learned: Deployment) -> None:
    base, whole = begun_with(learned), shadow()
    points = await killed_at(learned, whole, base)
    assert len(points) == 2 * (1 + 2 * (2 + 1)), "the base; of each batch two halves and a flush"
    for at in range(1, len(points) + 1):
        target = shadow()
        await killed_at(learned, target, base, at)
        async with target.running():
            done = await VariantRun(learned.log, target.log, NAME, timeout_s=20).run(
                await planned(learned), base
            )
            await target.until(partial(_is_quiet, target))
        assert [version.reflections for version in done.versions] == [10, 10]
        assert said(target) == said(whole), f"killed at {points[at - 1]}, the {at}th"
        published = [
            message.reflection_id for message in ledger.messages(target.log, topics.REFLECTIONS, Reflection)
        ]
        assert sorted(published) == sorted(f"r-{n}" for n in range(20))
        assert (await audit(target.log)).violations == ()


def _is_quiet(target: Deployment) -> bool:
    return not ledger.behind(target.log)


def said(target: Deployment) -> list[tuple[str, object]]:
    return [(version.origin, version.entries) for version in ledger.versions(target.log)]


class LateLog(FaultInjectingLog):
    """A log that says where it ends only after all that is under way has been applied."""

    def __init__(self, target: Deployment, reflections: int) -> None:
        super().__init__(target.log, CrashFailpoint())
        self.ends = self._late_ends
        self._target = target
        self._reflections = reflections

    async def _late_ends(self, topic: str) -> Mapping[int, int]:
        await self._target.until(lambda: ledger.applied(self._target.log) >= self._reflections)
        return await self._target.log.ends(topic)


async def test_a_batch_that_is_applied_while_a_resumed_replay_looks_is_not_waited_for(
    learned: Deployment,
) -> None:
    target = shadow()
    failpoint = CrashFailpoint(6)
    with pytest.raises(CrashError):  # after the flush of the first batch, which nobody has learned from yet
        await VariantRun(learned.log, TornLog(target.log, failpoint), NAME, timeout_s=5).run(
            await planned(learned), None
        )
    assert ledger.versions(target.log) == []
    async with target.running():
        resumed = VariantRun(learned.log, LateLog(target, 10), NAME, timeout_s=5)
        done = await resumed.run(await planned(learned), None)
    assert [version.reflections for version in done.versions] == [10, 10]


async def test_what_is_complete_is_read_without_services(learned: Deployment) -> None:
    target, wanted = shadow(), await planned(learned)
    run = VariantRun(learned.log, target.log, NAME, timeout_s=20)
    assert not await run.is_complete(wanted.batches)
    await replayed(learned.log, target, wanted)
    assert await run.is_complete(wanted.batches)
    again = await run.read(await planned(learned))
    assert again == wanted
