"""The evaluating judge beside publish: it speaks about each candidate, and says the same whatever dies."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pkgutil import resolve_name

import pytest

from combee.adapters.ports import Clock, Log, TransientError
from combee.assembly import compose, wiring
from combee.core.evaluation.questions import Question
from combee.core.gate.gate import Gate, gates_of
from combee.core.gate.judges import JUDGES
from combee.core.playbook.spend import UNCAPPED
from combee.log.evaluation.answering import FunctionAnswerer
from combee.log.evaluation.evaluator import Evaluated, Evaluator
from combee.log.evaluation.judge import AskJudge, EvaluationJudge, Judges, OnAnswer
from combee.process.settings.loading import Settings, load_settings
from combee.process.worker.views import View
from combee_schemas import topics
from combee_schemas.gate import Judge, Verdict
from combee_schemas.playbook import Label, Playbook
from support import ledger
from support.deployment import Deployment
from support.failpoints.points import CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.gates import batch, contents, decisions, deployment_with, labels, places, send
from support.ledger import latest
from support.planned import PlanningDeployment

pytestmark = pytest.mark.usefixtures("quick_polls")

QUESTIONS = [Question(id=f"q-{number}", text="?", target="yes") for number in range(8)]


class Exam:
    """Scores by what a playbook says: nothing harmful, and lesson 1."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, text: str, _question: Mapping[str, str]) -> float:
        self.asked += 1
        return float("lesson 1" in text and "lesson 2" not in text)


def examining(log: Log, deployment: Deployment, exam: Exam) -> EvaluationJudge:
    evaluator = Evaluator(log, FunctionAnswerer(exam, "exam"), deployment.clock, concurrency=1, caps=UNCAPPED)
    return EvaluationJudge(evaluator, QUESTIONS, deployment.clock, margin=0.05, judged_by="function exam")


async def asking(log: Log, judges: Mapping[Judge, AskJudge]) -> None:
    """Ask judges as their service does."""
    changed = asyncio.Event()
    labels = View(log, topics.LABELS, on_change=lambda _key, _label: changed.set())
    await wiring.run_evaluate(Judges(log, judges), labels, changed, asyncio.Event())


async def judged(
    deployment: Deployment,
    until: Callable[[], bool],
    judges: Exam | Mapping[Judge, AskJudge],
    failpoint: CrashFailpoint | None = None,
) -> None:
    """Run judges and publish until a condition holds, or the judges die."""
    log = FaultInjectingLog(deployment.log, failpoint or CrashFailpoint())
    if isinstance(judges, Exam):
        judges = {"evaluate": examining(log, deployment, judges)}
    work = asyncio.create_task(asking(log, judges))
    try:
        async with deployment.running(["publish"]):
            await deployment.until(lambda: until() or work.done())
    finally:
        work.cancel()
        (ended,) = await asyncio.gather(work, return_exceptions=True)
    if not log._failpoint.dead and not isinstance(ended, asyncio.CancelledError):
        raise AssertionError("the judge ended by itself") from ended


def verdicts(deployment: Deployment) -> list[Verdict]:
    return ledger.messages(deployment.log, topics.VERDICTS, Verdict)


async def test_a_good_candidate_is_accepted_and_a_worse_one_is_closed_by_itself() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1))
    await judged(deployment, lambda: places(deployment.log) == (1, 0), Exam())
    await send(deployment, batch(2), batch(3))
    await judged(deployment, lambda: places(deployment.log) == (4, 0), Exam())
    assert contents(latest(deployment.log)) == ["lesson 1", "lesson 3"]
    assert [(each.candidate, each.accepts) for each in verdicts(deployment)] == [
        (1, True),
        (2, False),
        (4, True),
    ]
    assert verdicts(deployment)[1].figures == {
        "n": 8,
        "candidate": 0.0,
        "production": 1.0,
        "difference": -1.0,
        "low": pytest.approx(-1.0, abs=0.2),
        "high": pytest.approx(-0.5, abs=0.3),
    }


def points() -> Iterator[int]:
    """Yield the points at which the judge is killed: around each of its writes."""
    return iter(range(1, 4 * len(QUESTIONS)))


async def test_a_judge_killed_at_any_write_asks_nothing_twice_and_says_the_same() -> None:
    deaths = 0
    for at in points():
        deployment, exam = deployment_with("evaluate"), Exam()
        await send(deployment, batch(1))
        failpoint = CrashFailpoint(at)
        await judged(deployment, lambda: places(deployment.log)[0] == 1, exam, failpoint)  # noqa: B023
        deaths += failpoint.dead
        await judged(deployment, lambda: places(deployment.log)[0] == 1, exam)  # noqa: B023
        assert len({each.accepts for each in verdicts(deployment)}) == 1, f"killed at {at}"
        assert [each.decided for each in decisions(deployment.log)] == ["opened", "accepted"]
        # Of the one question that was being answered the answer is lost, if it was not written.
        assert exam.asked <= 2 * len(QUESTIONS) + 1, f"killed at {at}"
    assert deaths > len(QUESTIONS)


async def test_two_judges_at_once_decide_once() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1))
    judge = examining(deployment.log, deployment, Exam())
    work = [asyncio.create_task(asking(deployment.log, {"evaluate": judge})) for _ in range(2)]
    try:
        async with deployment.running(["publish"]):
            await deployment.until(
                lambda: places(deployment.log) == (1, 0) and len(verdicts(deployment)) == 2
            )
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    assert [each.decided for each in decisions(deployment.log)] == ["opened", "accepted"]


class Capped(Evaluator):
    """One that may ask nothing more today."""

    async def evaluate(self, playbook: Playbook, *_: object) -> Evaluated:
        return Evaluated(playbook=playbook.name, version=playbook.version, unasked=3, stopped="the cap")


@asynccontextmanager
async def short(_settings: Settings, _log: Log, clock: Clock) -> AsyncIterator[AskJudge]:
    """Yield a judge that accepts versions of at most two entries."""

    async def ask(gate: Gate, candidate: Playbook, production: Playbook, _on_answer: OnAnswer) -> Verdict:
        return Verdict(
            playbook=candidate.name,
            candidate=candidate.version,
            production=production.version,
            judge="short",
            accepts=gate.production.version == production.version and len(candidate.entries) <= 2,
            judged_at_ms=clock.now_ms(),
        )

    yield ask


async def test_one_entry_makes_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JUDGES, "short", f"{__name__}:short")
    settings = load_settings(gate="short")
    assert compose.judges(settings) == ("evaluate",)
    deployment = PlanningDeployment(gates=settings.gate.policy())
    async with compose.open_judges(settings, deployment.log, deployment.clock) as judges:
        for number, accepted in ((1, 1), (2, 2), (3, 2)):
            await send(deployment, batch(number))
            await judged(deployment, lambda: len(verdicts(deployment)) == number, judges)  # noqa: B023
            assert places(deployment.log) == (accepted, 0)


def test_what_opens_a_judge_is_there() -> None:
    opened = [opener for opener in JUDGES.values() if opener]
    assert opened
    assert all(callable(resolve_name(name)) for name in opened)


async def test_a_judge_that_gets_no_answer_holds_up_no_other() -> None:
    async def no_answer(*_: object) -> Verdict:
        raise TransientError("no answer")

    deployment = deployment_with("evaluate", "short")
    await send(deployment, batch(1))
    async with short(load_settings(), deployment.log, deployment.clock) as ask:
        judges = Judges(deployment.log, {"evaluate": no_answer, "short": ask})
        with pytest.raises(TransientError):
            await judges.judge(lambda: labels(deployment.log).values())
    assert [each.judge for each in verdicts(deployment)] == ["short"]


async def test_a_playbook_without_an_answer_holds_up_no_other() -> None:
    """What makes its model hang or its endpoint fail may be in what a producer taught there."""
    deployment = deployment_with("evaluate")
    mute = batch(1).model_copy(update={"plan": batch(1).plan.model_copy(update={"playbook": "a"})})
    await send(deployment, mute, batch(1))
    judge = examining(deployment.log, deployment, Exam())

    async def ask(
        gate: Gate, candidate: Playbook, production: Playbook, on_answer: OnAnswer
    ) -> Verdict | None:
        if candidate.name == "a":
            raise TransientError("no answer")
        return await judge(gate, candidate, production, on_answer)

    known = ledger.messages(deployment.log, topics.LABELS, Label)
    assert next(iter(gates_of(known))) == "a"
    with pytest.raises(TransientError):
        await Judges(deployment.log, {"evaluate": ask}).judge(lambda: known)
    assert [each.playbook for each in verdicts(deployment)] == [ledger.NAME]


async def test_what_may_not_be_asked_today_leaves_the_candidate_waiting() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1))
    evaluator = Capped(deployment.log, FunctionAnswerer(Exam(), "exam"), deployment.clock, caps=UNCAPPED)
    judge = EvaluationJudge(evaluator, QUESTIONS, deployment.clock, margin=0.05, judged_by="exam")
    judges = Judges(deployment.log, {"evaluate": judge})
    await judges.judge(lambda: labels(deployment.log).values())
    assert verdicts(deployment) == []


async def test_a_function_that_fails_leaves_the_candidate_waiting() -> None:
    deployment = deployment_with("evaluate")
    await send(deployment, batch(1))

    async def fails(_text: str, _question: Mapping[str, str]) -> float:
        raise ValueError("no")

    evaluator = Evaluator(deployment.log, FunctionAnswerer(fails, "f"), deployment.clock, caps=UNCAPPED)
    judge = EvaluationJudge(evaluator, QUESTIONS, deployment.clock, margin=0.05, judged_by="f")
    judges = Judges(deployment.log, {"evaluate": judge})
    await judges.judge(lambda: labels(deployment.log).values())
    assert verdicts(deployment) == []
