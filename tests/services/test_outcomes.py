"""Outcomes end in statistics, once each, whatever dies: those that agents send, and those that traces carry."""

import asyncio

import pytest

from combee.adapters.memory import MemoryLog
from combee.core.evaluation.outcomes import fold
from combee.core.evaluation.outcomes.fold import Fold
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.outcome import Figures, Outcome, OutcomeStatistics
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import CONTROL, Deployment
from support.killed import killed_at_each_write
from support.ledger import NAME

pytestmark = pytest.mark.usefixtures("quick_polls")

OTHER = "checkout"


def outcome(number: int, version: int = 1, playbook: str = NAME, *, success: bool | None = True) -> Outcome:
    return Outcome(
        run_id=f"t-{number}",
        playbook=playbook,
        shown=Shown(version=version),
        success=success,
        score={"x": number},
    )


SAID = [
    *(outcome(number, number % 3, success=number % 2 == 0) for number in range(12)),
    *(outcome(number, playbook=OTHER) for number in range(3)),
    outcome(3, 0),  # said again
]


async def said(*outcomes: Outcome, deployment: Deployment | None = None) -> Deployment:
    deployment = deployment or Deployment()
    await deployment.log.produce(*map(topics.OUTCOMES.record, outcomes))
    return deployment


def statistics(log: MemoryLog) -> dict[str, OutcomeStatistics]:
    """Return the newest of each line, without the time."""
    newest = ledger.messages(log, topics.OUTCOME_STATISTICS, OutcomeStatistics)
    return {each.line: each.model_copy(update={"updated_at_ms": 0}) for each in newest}


def over(deployment: Deployment) -> bool:
    return not ledger.behind(deployment.log, {CONTROL: (topics.OUTCOMES,)})


async def folded(deployment: Deployment, roles: tuple[str, ...] = (CONTROL,)) -> Deployment:
    async with deployment.running(roles):
        await deployment.until(lambda: over(deployment))
    return deployment


async def expected() -> dict[str, OutcomeStatistics]:
    return statistics((await folded(await said(*SAID))).log)


async def test_outcomes_become_statistics_of_each_playbook() -> None:
    found = await expected()
    assert found.keys() == {NAME, OTHER}
    assert [version.figures.runs for version in found[NAME].versions] == [4, 4, 4]
    assert found[OTHER].versions[0].figures.successes == 3


async def test_other_tasks_run_between_the_outcomes_of_one_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, folded_by_turn, ran = await said(*SAID), [], 0
    add = Fold.add

    def add_counted(self: Fold, offset: int, outcome: Outcome) -> None:
        folded_by_turn.append(ran)
        add(self, offset, outcome)

    async def run() -> None:
        nonlocal ran
        while True:
            ran += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Fold, "add", add_counted)
    task = asyncio.create_task(run())
    await folded(deployment)
    task.cancel()
    assert len(set(folded_by_turn)) == len(SAID)


async def test_a_service_killed_at_any_write_counts_each_run_once() -> None:
    wanted = await expected()
    deaths = 0
    async for at, deployment in killed_at_each_write(CONTROL, lambda: said(*SAID), over):
        deaths += 1
        assert statistics(deployment.log) == wanted, f"killed at point {at}"
    assert deaths >= 5


async def test_what_comes_between_two_lives_is_known_for_a_repeat() -> None:
    deployment = await folded(await said(*SAID))
    await said(*SAID[:5], outcome(100), deployment=deployment)
    found = statistics((await folded(deployment)).log)
    assert sum(version.figures.runs for version in found[NAME].versions) == 13


async def test_a_group_that_is_reset_counts_nothing_again() -> None:
    deployment = await folded(await said(*SAID))
    wanted = statistics(deployment.log)
    del deployment.log._store.committed[CONTROL]
    assert statistics((await folded(deployment)).log) == wanted


async def test_a_late_outcome_finds_its_run_after_a_restart() -> None:
    first = Outcome(run_id="t", playbook=NAME, shown=Shown(version=4))
    deployment = await folded(await said(first))
    assert statistics(deployment.log)[NAME].versions[0].figures == Figures(runs=1, unscored=1)
    await said(Outcome(run_id="t", playbook=NAME, success=True), deployment=deployment)
    found = statistics((await folded(deployment)).log)[NAME]
    assert found.versions[0].figures == Figures(runs=1, successes=1)
    assert found.unplaced == 0


async def test_without_what_was_said_before_a_restart_the_late_outcome_would_find_no_run() -> None:
    """The protection switched off: a fold that begins at the committed offset with the statistics alone."""
    deployment = await folded(await said(Outcome(run_id="t", playbook=NAME, shown=Shown(version=4))))
    fold = Fold(statistics(deployment.log).values())
    fold.add(1, Outcome(run_id="t", playbook=NAME, success=True))
    (found,) = fold.changed(0)
    assert found.unplaced == 1


async def test_a_trace_that_says_how_it_went_is_an_outcome_before_the_model_is_asked() -> None:
    deployment = Deployment()
    traces = [
        Trace(trace_id="t-1", playbook=NAME, task="a", shown=Shown(version=2), success=True, agent="x"),
        Trace(trace_id="t-2", playbook=NAME, task="b"),
        Trace(trace_id="t-3", playbook=NAME, task="c", score={"reward": 0.5}),
    ]
    await deployment.log.produce(*map(topics.TRACES.record, traces))
    asked: list[int] = []

    def outcomes_before(_prompt: object) -> dict[str, str]:
        asked.append(len(ledger.records(deployment.log, topics.OUTCOMES)))
        return {"key_insight": "x"}

    deployment.model.answer = outcomes_before
    async with deployment.running(["reflect", CONTROL]):
        await deployment.until(
            lambda: over(deployment) and len(ledger.records(deployment.log, topics.REFLECTIONS)) == 3
        )
    said_by_traces = ledger.messages(deployment.log, topics.OUTCOMES, Outcome)
    assert sorted(each.run_id for each in said_by_traces) == ["t-1", "t-3"]
    assert asked, "the model was not asked"
    found = statistics(deployment.log)[NAME]
    assert (found.unplaced, found.versions[0].version, found.versions[0].figures.successes) == (1, 2, 1)


async def test_an_outcome_alone_asks_no_model() -> None:
    deployment = await folded(await said(*SAID), (CONTROL, "publish", "scan", "shuffle", "reflect"))
    assert deployment.model.calls == 0
    assert not ledger.records(deployment.log, topics.REFLECTIONS)


async def test_invented_playbooks_and_branches_take_bounded_room_and_push_out_none_that_has_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold, "MAX_LINES", 80, raising=False)
    invented = [
        *(
            outcome(0).model_copy(
                update={"run_id": f"b{n}", "shown": Shown(version=1, line=f"{NAME}@b{n}"), "score": {}}
            )
            for n in range(300)
        ),
        *(outcome(n, playbook=f"invented-{n}") for n in range(300)),
    ]
    deployment = await said(*SAID[:6], *invented[:400], *SAID[6:], *invented[400:])
    await folded(deployment)
    kept = newest_lines(deployment)
    assert len(kept) <= 2 * 80  # per partition
    for name, expects in (await expected()).items():
        known = kept[name]
        placed = [(each.version, each.figures) for each in known.versions]
        assert placed == [(each.version, each.figures) for each in expects.versions]
    await folded(await said(outcome(100, playbook="invented-299"), deployment=deployment))
    again = newest_lines(deployment)
    assert len(again) <= 2 * 80
    for name in (NAME, OTHER):
        assert again[name].versions == kept[name].versions


def newest_lines(deployment: Deployment) -> dict[str, OutcomeStatistics]:
    """Return the statistics that are left when the topic is compacted."""
    newest = {record.key: record for record in ledger.records(deployment.log, topics.OUTCOME_STATISTICS)}
    read = [topics.OUTCOME_STATISTICS.read(record) for record in newest.values() if record.value is not None]
    return {statistics.line: statistics for statistics in read}
