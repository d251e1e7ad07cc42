"""Scores versions on held-out questions. Recorded scores are used again; new ones have a daily cap per playbook."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from combee.adapters.ports import Clock, CombeeError, Log, TransientError
from combee.core.evaluation.intervals import Interval, share
from combee.core.evaluation.questions import Question, asked
from combee.core.evaluation.scoring import Points
from combee.core.playbook.spend import MOST, SpendPolicy, pause, today
from combee.log.evaluation.answering import Answerer
from combee.log.history import whole
from combee_schemas import topics
from combee_schemas.base import DAY_MS, Usage
from combee_schemas.evaluation import MAX_ANSWER, Evaluation
from combee_schemas.playbook import Playbook, Spend

MAX_TROUBLE = 300


@dataclass(slots=True, kw_only=True)
class Evaluated:
    """The scores of one version on the questions asked."""

    playbook: str
    version: int
    points: dict[str, Points] = field(default_factory=dict)
    """By question."""
    known: int = 0
    """Number of questions not asked now: their score was recorded earlier, or an equal question was asked."""
    usage: Usage = field(default_factory=Usage)
    """Usage of the questions that were asked now."""
    cost: float = 0.0
    troubles: list[str] = field(default_factory=list)
    """Why questions have no answer; these count as wrong."""
    unasked: int = 0
    """Number of questions left out, for the reason in ``stopped``."""
    stopped: str = ""
    """Why the remaining questions were not asked."""

    @property
    def score(self) -> Interval:
        """The share answered right, with its interval."""
        return share(self.points)


class Evaluator:
    """Asks each question once for the same content of a playbook; all evaluations in a log share the scores."""

    def __init__(
        self,
        log: Log,
        answerer: Answerer,
        clock: Clock,
        *,
        concurrency: int = 8,
        caps: SpendPolicy,
        stall_s: float = 600.0,
        known_in: Sequence[Log] = (),
    ) -> None:
        self._log = log
        self._answerer = answerer
        self._clock = clock
        self._concurrency = concurrency
        self._caps = caps
        self._stall_s = stall_s
        self._known_in = (log, *known_in)
        self._known: dict[str, Points] | None = None
        self._spent: dict[str, Spend] = {}

    async def evaluate(
        self,
        playbook: Playbook,
        questions: Sequence[Question],
        on_answer: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> Evaluated:
        """Return a version's scores; every answer is recorded before it counts.

        Raises
        ------
        TransientError
            If a question has no answer after ``stall_s``; earlier answers are recorded.
        """
        known = await self._load()
        result = Evaluated(playbook=playbook.name, version=playbook.version)
        keys = {question.id: asked(self._answerer.rests_on(playbook, question)) for question in questions}
        waiting: dict[str, list[Question]] = {}
        for question in questions:
            if keys[question.id] not in known:
                waiting.setdefault(keys[question.id], []).append(question)
        result.points = {
            question.id: known[keys[question.id]] for question in questions if keys[question.id] in known
        }
        result.known = len(result.points)
        on_answer(result.known, len(questions))
        # All workers take their next question from this iterator.
        to_ask, in_flight = iter(waiting.items()), 0

        async def work() -> None:
            nonlocal in_flight
            for key, (question, *equal) in to_ask:
                if result.stopped or (why := self._why_paused(playbook.name, in_flight)):
                    result.stopped = result.stopped or why
                    result.unasked += 1 + len(equal)
                    continue
                in_flight += 1
                try:
                    await self._ask(playbook, question, key, result)
                finally:
                    in_flight -= 1
                result.points |= {other.id: result.points[question.id] for other in equal}
                result.known += len(equal)
                on_answer(len(result.points), len(questions))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._answerer.at_once or self._concurrency, len(waiting))):
                    group.create_task(work())
        except* CombeeError as failed:
            raise failed.exceptions[0] from failed
        return result

    async def _ask(self, playbook: Playbook, question: Question, key: str, result: Evaluated) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                answered = await self._answerer.answer(playbook, question)
        except TimeoutError as error:
            raise TransientError(
                f"{self._answerer.name} gave no answer to {question.id} in {self._stall_s:.0f} s; earlier"
                f" answers are recorded, and the same command continues from there"
            ) from error
        cost = self._caps.cost(answered.usage)
        evaluation = Evaluation(
            asked=key,
            playbook=playbook.name,
            version=playbook.version,
            question_id=question.id,
            answered_by=self._answerer.name[:300],
            right=answered.points.right,
            places=answered.points.places,
            answer=answered.answer[:MAX_ANSWER],
            trouble=answered.trouble[:MAX_TROUBLE],
            usage=answered.usage,
            cost=cost,
            evaluated_at_ms=self._clock.now_ms(),
        )
        await self._log.produce(topics.EVALUATIONS.record(evaluation))
        self._take(evaluation)
        result.points[question.id] = answered.points
        result.usage += answered.usage
        result.cost += cost
        if answered.trouble:
            result.troubles.append(f"{question.id}: {answered.trouble}")

    # ---- earlier scores, and today's usage

    async def _load(self) -> Mapping[str, Points]:
        if self._known is None:
            self._known = {}
            for log in self._known_in:
                for record in await whole(log, topics.EVALUATIONS):
                    evaluation = topics.EVALUATIONS.read_or_none(record)
                    if evaluation is not None:
                        self._take(evaluation)
        return self._known

    def _take(self, evaluation: Evaluation) -> None:
        assert self._known is not None  # noqa: S101 - loaded before the first question
        # If two evaluators ask the same question at once, both pay, and compaction keeps the last score.
        self._known[evaluation.asked] = Points(right=evaluation.right, places=evaluation.places)
        spent = today(self._spent.get(evaluation.playbook, Spend()), evaluation.evaluated_at_ms)
        if evaluation.evaluated_at_ms // DAY_MS < spent.day:
            return  # It was asked before the newest day known, and does not count against that day's cap.
        tokens = evaluation.usage.tokens_in + evaluation.usage.tokens_out
        self._spent[evaluation.playbook] = spent.model_copy(
            update={
                "tokens": min(spent.tokens + tokens, MOST),
                "cost": spent.cost + evaluation.cost,
                "tokens_each": tokens or spent.tokens_each,
                "cost_each": evaluation.cost or spent.cost_each,
            }
        )

    def _why_paused(self, name: str, in_flight: int) -> str:
        """Return why no further question may be asked today; empty: it may."""
        spent = self._spent.get(name, Spend(day=self._clock.now_ms() // DAY_MS))
        paused = pause(spent, self._caps, in_flight=in_flight, batch_size=1, now_ms=self._clock.now_ms())
        if paused is None:
            return ""
        return (
            "the cap of evaluations is reached (COMBEE_EVAL_DAILY_TOKENS):"
            f" {paused.reason}; earlier answers are recorded, and the same command continues from there"
        )
