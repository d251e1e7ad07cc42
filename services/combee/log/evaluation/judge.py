"""Runs the judges: each judges every candidate that waits for it, and its verdict is written to ``verdicts``.

A killed judge begins again. The judge "evaluate" records each score before it uses it, so it asks no question twice
and reaches the same verdict. Publish counts only a judge's first verdict on a candidate.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from combee.adapters.ports import NO_TRACING, Clock, Log, PoisonError, Tracing, TransientError
from combee.core.evaluation.questions import Question
from combee.core.gate.evaluate import verdict
from combee.core.gate.gate import Gate, gates_of
from combee.core.playbook.versions import empty
from combee.log.evaluation.evaluator import Evaluator
from combee.log.history import History
from combee_schemas import topics
from combee_schemas.gate import Judge, Verdict
from combee_schemas.playbook import Label, Playbook

logger = structlog.get_logger()

OnAnswer = Callable[[], None]
AskJudge = Callable[[Gate, Playbook, Playbook, OnAnswer], Awaitable[Verdict | None]]
"""Returns the verdict on a gate's candidate against the production version; None: not yet.

Raises PoisonError if no verdict is possible, TransientError if the judge has to be asked again."""
Spoken = tuple[Judge, str, int, int, int]
"""Judge, playbook, candidate, production version, and the time since which it is that."""


class Judges:
    """Asks judges about the candidates that wait for them, one after the other."""

    def __init__(self, log: Log, asked: Mapping[Judge, AskJudge], tracing: Tracing = NO_TRACING) -> None:
        self._log = log
        self._asked = asked
        self._tracing = tracing
        self._history = History(log)
        self._spoken: set[Spoken] = set()
        """Written verdicts that may not be in the labels yet."""

    async def judge(self, labels: Callable[[], Iterable[Label]], on_answer: OnAnswer = lambda: None) -> None:
        """Judge all waiting candidates, each by the labels at its turn.

        Raises
        ------
        TransientError
            If an answer does not come, after all candidates had their turn; earlier answers are recorded.
        """
        trouble: TransientError | None = None
        for judge in self._asked:
            for name in [name for name, gate in gates_of(labels()).items() if gate.waits_for(judge)]:
                gate = gates_of(labels()).get(name)
                if gate is None or not gate.waits_for(judge) or _key(judge, gate) in self._spoken:
                    continue
                try:
                    with self._tracing.span("judge candidate", {"combee.playbook": name}):
                        await self._ask(judge, gate, on_answer)
                except TransientError as error:
                    logger.warning("no_verdict_yet", playbook=name, judge=judge, reason=str(error))
                    trouble = error
        if trouble is not None:
            raise trouble

    async def _ask(self, judge: Judge, gate: Gate, on_answer: OnAnswer) -> None:
        assert gate.candidate is not None  # noqa: S101 - it waits
        name, number = gate.candidate.playbook, gate.candidate.version
        candidate, production = [
            await self._version(name, label.version) for label in (gate.candidate, gate.production)
        ]
        try:
            said = await self._asked[judge](gate, candidate, production, on_answer)
        except PoisonError as error:
            # The candidate cannot be judged: it waits, and the reason is reported.
            logger.error("no_verdict", playbook=name, candidate=number, judge=judge, reason=str(error))
            return
        if said is None:
            return
        await self._log.produce(topics.VERDICTS.record(said))
        self._spoken.add(_key(judge, gate))
        logger.info(
            "verdict", playbook=name, candidate=number, judge=judge, accepts=said.accepts, reason=said.reason
        )

    async def _version(self, name: str, number: int) -> Playbook:
        """Return a version; 0 is the empty one.

        Raises
        ------
        TransientError
            If it is missing, or not written yet.
        """
        version = await self._history.exactly(name, number) if number else empty(name)
        if version is None:
            raise TransientError(f"version {number} of {name} is not in the history")
        return version


def _key(judge: Judge, gate: Gate) -> Spoken:
    candidate, production = gate.candidate, gate.production
    number = candidate.version if candidate else 0
    return judge, production.playbook, number, production.version, production.moved_at_ms


@dataclass(frozen=True, slots=True)
class EvaluationJudge:
    """The judge "evaluate": it scores both versions on the same held-out questions."""

    evaluator: Evaluator
    questions: Sequence[Question]
    clock: Clock
    margin: float
    judged_by: str

    async def __call__(
        self, gate: Gate, candidate: Playbook, production: Playbook, on_answer: OnAnswer
    ) -> Verdict | None:
        """Return the verdict on a candidate; None: a cap stops the questions.

        Raises
        ------
        PoisonError, TransientError
            If an answer cannot be scored, or does not come.
        """
        results = [
            await self.evaluator.evaluate(version, self.questions, lambda _done, _all: on_answer())
            for version in (candidate, production)
        ]
        if stopped := next((result.stopped for result in results if result.unasked), ""):
            logger.warning(
                "no_verdict_yet", playbook=candidate.name, candidate=candidate.version, reason=stopped
            )
            return None
        ours, theirs = (result.points for result in results)
        return verdict(
            gate,
            ours,
            theirs,
            margin=self.margin,
            judged_by=self.judged_by,
            now_ms=self.clock.now_ms(),
        )
