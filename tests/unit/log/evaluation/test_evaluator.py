"""The evaluator on the in-memory log: nothing is paid for twice, caps hold, troubles are told."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import ConfigurationError, PoisonError, TransientError
from combee.assembly.answerers import evaluation_model
from combee.core.evaluation.questions import Question
from combee.core.evaluation.scoring import MAX_SEARCHED, ScorerName
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import empty
from combee.log.evaluation import isolated
from combee.log.evaluation.answering import FunctionAnswerer, ModelAnswerer, loaded_function
from combee.log.evaluation.evaluator import Evaluated, Evaluator
from combee.log.history import whole
from combee.process.settings.loading import load_settings
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.evaluation import Evaluation
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from support.clock import ManualClock
from support.models import ModelClient, ScriptedModel
from support.playbooks import BASE, entry
from support.rows import each_row
from support.waiting import until

DAY_S = 24 * 3600
QUESTIONS = [Question(id=f"q-{i}", text=f"What is {i} + {i}?", target=str(2 * i)) for i in range(6)]
OTHER = BASE.model_copy(update={"version": 5, "entries": (*BASE.entries, entry("calc-00008", "double it"))})


def knows(prompt: Prompt) -> Mapping[str, str]:
    """Answer with what is right, if the playbook says how."""
    if prompt.reply_name == "judgement":
        return {"is_right": "no json boolean"}
    number = prompt.user.split("What is ")[1].split(" ")[0]
    return {"final_answer": str(2 * int(number)) if "double it" in prompt.system else "unknown"}


class Exam:
    """A log, a model and the clock of one test."""

    def __init__(self, *, scorer: ScorerName = "ace", caps: SpendPolicy = UNCAPPED, at_once: int = 2) -> None:
        self.clock, self.model = ManualClock(), ScriptedModel(knows)
        self.log = MemoryLog(self.clock)
        self.answerer = ModelAnswerer(ModelClient(self.model), "m", scorer=scorer)
        self.caps, self.at_once = caps, at_once

    def evaluator(self, *, known_in: Sequence[MemoryLog] = (), stall_s: float = 5.0) -> Evaluator:
        return Evaluator(
            self.log,
            self.answerer,
            self.clock,
            concurrency=self.at_once,
            caps=self.caps,
            stall_s=stall_s,
            known_in=known_in,
        )

    async def __call__(self, playbook: Playbook, questions: Sequence[Question] = QUESTIONS) -> Evaluated:
        return await self.evaluator().evaluate(playbook, questions)


async def test_a_version_is_worth_the_share_of_questions_that_it_answers() -> None:
    exam = Exam()
    assert (await exam(BASE)).score.mean == 0
    better = await exam(OTHER)
    assert (better.score.mean, better.known, len(better.points)) == (1, 0, 6)
    assert better.usage.calls == 6


async def test_what_was_asked_is_not_paid_for_again_by_whoever_asks() -> None:
    exam = Exam()
    first = await exam(OTHER, QUESTIONS[:4])
    again = await exam(OTHER)
    assert (first.known, again.known, exam.model.calls) == (0, 4, 6)
    assert again.usage.calls == 2
    renamed = OTHER.model_copy(update={"version": 9})
    assert (await exam(renamed)).known == 6, "the same content"


@each_row("change", ["content", "question", "target", "scorer", "model"])
async def test_whatever_changes_an_answer_or_its_score_is_asked_anew(change: str) -> None:
    exam = Exam()
    await exam(OTHER, QUESTIONS[:1])
    playbook, (question,) = OTHER, QUESTIONS[:1]
    if change == "content":
        playbook = OTHER.model_copy(update={"entries": OTHER.entries[:-1]})
    elif change == "question":
        question = replace(question, text="What is 0 + 00?")
    elif change == "target":
        question = replace(question, target="00")
    else:
        name, scorer = ("m2", "ace") if change == "model" else ("m", "exact")
        exam.answerer = ModelAnswerer(ModelClient(exam.model), name, scorer=scorer)  # type: ignore[arg-type]
    assert (await exam(playbook, [question])).known == 0
    assert exam.model.calls == 2


async def test_scores_are_known_from_another_log_that_is_only_read() -> None:
    production, shadow = Exam(), Exam()
    await production(OTHER)
    before = dict(await production.log.ends(topics.EVALUATIONS.name))
    result = await shadow.evaluator(known_in=[production.log]).evaluate(OTHER, QUESTIONS)
    assert (result.known, shadow.model.calls) == (6, 0)
    assert dict(await production.log.ends(topics.EVALUATIONS.name)) == before


async def test_a_cap_of_a_day_stops_the_questions_and_the_next_day_goes_on() -> None:
    exam = Exam(at_once=1)
    each = (await exam(OTHER, QUESTIONS[:1])).usage
    exam.caps = SpendPolicy(daily_tokens=3 * (each.tokens_in + each.tokens_out))
    stopped = await exam(OTHER)
    assert len(stopped.points) + stopped.unasked == 6
    assert 1 < len(stopped.points) <= 3
    assert "COMBEE_EVAL_DAILY_TOKENS" in stopped.stopped
    exam.clock.advance(DAY_S)
    assert len((await exam(OTHER)).points) > len(stopped.points)


async def test_what_an_earlier_day_cost_does_not_count_wherever_its_record_stands() -> None:
    exam = Exam()
    exam.clock.advance(DAY_S)
    await exam(OTHER, QUESTIONS[:1])
    earlier = Evaluation(
        asked="0" * 64,
        playbook=OTHER.name,
        version=1,
        question_id="q",
        right=1,
        usage=Usage(calls=1, tokens_in=1_000_000),
        evaluated_at_ms=exam.clock.now_ms() - DAY_S * 1000,
    )
    await exam.log.produce(topics.EVALUATIONS.record(earlier))
    exam.caps = SpendPolicy(daily_tokens=1_000_000)
    assert (await exam(OTHER)).stopped == ""


async def test_of_two_evaluators_at_once_the_last_record_counts_and_both_are_paid_for() -> None:
    exam, changed = Exam(), Exam()
    changed.log, changed.model.answer = exam.log, lambda _prompt: {"final_answer": "unknown"}
    each = (await exam(OTHER, QUESTIONS[:1])).usage
    first, second = exam.evaluator(), changed.evaluator()
    for evaluator in (first, second):
        await evaluator.evaluate(OTHER, QUESTIONS[:1])  # both have read what is known by now
    assert (await first.evaluate(OTHER, QUESTIONS[:4])).score.mean == 1
    assert (await second.evaluate(OTHER, QUESTIONS[:4])).score.mean == 0.25
    exam.caps = SpendPolicy(daily_tokens=6 * (each.tokens_in + each.tokens_out))
    third = await exam(OTHER)
    assert (third.known, third.unasked) == (4, 2), "what both spent is at the cap"
    assert third.score.mean == 0.25, "as after a compaction of the topic"


async def test_a_question_that_a_model_refuses_counts_as_wrong_and_says_why() -> None:
    exam = Exam()

    def refuses(_prompt: Prompt) -> Mapping[str, str]:
        raise PoisonError("too rude")

    exam.model.answer = refuses
    result = await exam(OTHER, QUESTIONS[:1])
    assert (result.score.mean, result.score.n) == (0, 1)
    assert result.troubles == ["q-0: too rude"]
    (record,) = await whole(exam.log, topics.EVALUATIONS)
    assert topics.EVALUATIONS.read(record).trouble == "too rude"


async def test_a_judge_that_says_nothing_is_a_trouble_too() -> None:
    result = await Exam(scorer="judge")(OTHER, QUESTIONS[:1])
    assert result.score.mean == 0
    assert "neither true nor false" in result.troubles[0]
    assert result.usage.calls == 2


async def test_a_model_that_never_answers_ends_in_an_error_and_what_was_answered_stays() -> None:
    exam = Exam(at_once=1)
    await exam(OTHER, QUESTIONS[:2])
    exam.model.gate.clear()
    with pytest.raises(TransientError, match=r"model m gave no answer to q-2 in 0 s.*continues from there"):
        await exam.evaluator(stall_s=0.05).evaluate(OTHER, QUESTIONS)
    exam.model.gate.set()
    assert (await exam(OTHER)).known == 2


async def test_of_questions_that_are_the_same_one_is_paid_for() -> None:
    exam = Exam()
    twins = [replace(QUESTIONS[1], id=f"twin-{n}") for n in range(3)]
    result = await exam(OTHER, [QUESTIONS[0], *twins])
    assert (exam.model.calls, result.usage.calls, result.known) == (2, 2, 2)
    assert (result.score.n, result.score.mean) == (4, 1)
    exam.caps = SpendPolicy(daily_tokens=1)
    assert (await exam(BASE, [QUESTIONS[0], *twins])).unasked == 4


# ---- patterns


@pytest.mark.parametrize(
    ("pattern", "answer", "right"),
    [
        (r"^\d+ days?$", "14 days", 1),
        (r"^\d+ days?$", "two weeks", 0),
        ("14 days", "x" * MAX_SEARCHED + "14 days", 0),
    ],
    ids=["found", "missing", "only in the beginning of an answer"],
)
async def test_an_answer_is_right_in_which_the_pattern_is_found(
    pattern: str, answer: str, right: int
) -> None:
    exam = Exam(scorer="regex")
    exam.model.answer = lambda _prompt: {"final_answer": answer}
    result = await exam(OTHER, [replace(QUESTIONS[0], target=pattern)])
    assert (result.score.mean, result.troubles) == (right, [])


async def test_a_pattern_that_takes_for_ever_is_a_trouble_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exam = Exam(scorer="regex")
    exam.model.answer = lambda _prompt: {"final_answer": "a" * 60 + "!"}
    with monkeypatch.context() as short:
        short.setattr(isolated, "PATTERN_S", 0.05)
        result = await exam(OTHER, [replace(QUESTIONS[0], target="(a+)+$")])
    assert (result.score.mean, result.score.n) == (0, 1)
    assert "q-0: the pattern '(a+)+$' took longer than 0.05 s" in result.troubles[0]
    assert (await exam(OTHER, [replace(QUESTIONS[1], target="a!")])).score.mean == 1


# ---- functions


async def test_a_function_gets_the_text_and_the_question_and_says_a_number() -> None:
    seen: list[tuple[str, Mapping[str, str]]] = []

    async def half(playbook: str, question: Mapping[str, str]) -> float:
        await asyncio.sleep(0)
        seen.append((playbook, question))
        return 0.5

    answerer = FunctionAnswerer(half, "function half")
    evaluator = Evaluator(MemoryLog(ManualClock()), answerer, ManualClock(), caps=UNCAPPED)
    result = await evaluator.evaluate(OTHER, QUESTIONS[:1])
    assert result.score.mean == 0.5
    assert "double it" in seen[0][0]
    assert seen[0][1] == {"id": "q-0", "question": "What is 0 + 0?", "target": "0"}
    assert result.usage == Usage()


@each_row("value", [None, "0.5", 1.5, -0.1, float("nan"), 10**400])
async def test_what_is_no_score_is_refused_and_recorded_nowhere(value: object) -> None:
    log = MemoryLog(ManualClock())
    answerer = FunctionAnswerer(lambda _playbook, _question: value, "function f")  # type: ignore[arg-type,return-value]
    with pytest.raises(PoisonError, match="must be a number from 0 to 1"):
        await Evaluator(log, answerer, ManualClock(), caps=UNCAPPED).evaluate(empty("p"), QUESTIONS[:1])
    assert not await whole(log, topics.EVALUATIONS)


async def test_a_function_that_fails_is_named_with_the_question() -> None:
    def fails(_playbook: str, question: Mapping[str, str]) -> float:
        return 1 / len(question["no such field"])

    evaluator = Evaluator(
        MemoryLog(ManualClock()), FunctionAnswerer(fails, "function f"), ManualClock(), caps=UNCAPPED
    )
    with pytest.raises(PoisonError, match="function f failed on q-0: KeyError"):
        await evaluator.evaluate(empty("p"), QUESTIONS[:1])


async def test_a_function_that_blocks_holds_up_nobody_and_gets_one_question_at_a_time() -> None:
    turned, calls = threading.Event(), list[int]()

    def blocks(_playbook: str, _question: Mapping[str, str]) -> float:
        calls.append(len(calls))
        assert turned.wait(5), "the loop goes on"
        calls.pop()
        return float(not calls)

    answerer = FunctionAnswerer(blocks, "function blocks")
    evaluator = Evaluator(MemoryLog(ManualClock()), answerer, ManualClock(), caps=UNCAPPED)
    asking = asyncio.create_task(evaluator.evaluate(OTHER, QUESTIONS))
    await until(lambda: bool(calls))
    turned.set()
    assert (await asking).score.mean == 1


def test_a_function_that_never_returns_is_given_up_with_the_question_and_the_process_can_end() -> None:
    never = threading.Event()
    answerer = FunctionAnswerer(lambda *_: float(never.wait()), "function f")
    evaluator = Evaluator(MemoryLog(ManualClock()), answerer, ManualClock(), caps=UNCAPPED, stall_s=0.05)
    with pytest.raises(TransientError, match="function f gave no answer to q-0 in 0 s"):
        asyncio.run(evaluator.evaluate(empty("p"), QUESTIONS[:1]))
    assert any(thread.daemon and thread.name == "evaluation" for thread in threading.enumerate())
    never.set()


@pytest.mark.parametrize("place", ["no.such.module:f", "json:no_such", "json:__name__"])
def test_a_function_that_is_not_there_is_told_with_its_setting(place: str) -> None:
    with pytest.raises(ConfigurationError, match=f"COMBEE_EVAL_FUNCTION: {place}"):
        loaded_function(place)
    assert not loaded_function("operator:eq")("a", {})


# ---- which model


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, ("http://ours/v1", "ours")),
        ({"eval_api_key": "theirs"}, ("http://ours/v1", "theirs")),
        ({"eval_base_url": "http://theirs/v1"}, ("http://theirs/v1", None)),
        ({"eval_base_url": "http://theirs/v1", "eval_api_key": "theirs"}, ("http://theirs/v1", "theirs")),
    ],
    ids=["nothing", "a key", "a server", "both"],
)
def test_the_services_key_goes_to_the_services_server_alone(
    own: dict[str, str], expected: tuple[str, str | None]
) -> None:
    settings = load_settings(model="m", base_url="http://ours/v1", api_key="ours", **own)
    for model in (evaluation_model(settings), evaluation_model(settings, "judge")):
        key = model.api_key.get_secret_value() if model.api_key else None
        assert (model.base_url, key) == expected
