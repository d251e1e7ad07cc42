"""The judge *evaluate*: it scores each candidate and publishes its verdict; whoever is killed begins again.

A score is recorded before it counts, so beginning again asks nothing twice and says the same. Publish counts the
first verdict alone.
"""

from collections.abc import Callable, Iterable, Sequence

import structlog

from combee.core.evaluation.questions import Question
from combee.core.gate.evaluate import verdict
from combee.core.gate.gate import Gate, gates_of
from combee.core.playbook.versions import empty
from combee.evaluation.evaluator import Evaluator
from combee.history import History
from combee.ports import NO_TRACING, Clock, Log, PoisonError, Tracing, TransientError
from combee_schemas import topics
from combee_schemas.playbook import Label, Playbook

logger = structlog.get_logger()

Spoken = tuple[str, int, int, int]
"""Playbook, candidate, production version, and when that became it."""


class EvaluationJudge:
    """Judges the candidates that wait for it, one after the other."""

    def __init__(
        self,
        log: Log,
        evaluator: Evaluator,
        questions: Sequence[Question],
        clock: Clock,
        *,
        margin: float,
        judged_by: str,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self._log = log
        self._evaluator = evaluator
        self._questions = questions
        self._clock = clock
        self._margin = margin
        self._judged_by = judged_by
        self._tracing = tracing
        self._history = History(log)
        self._spoken: set[Spoken] = set()
        """What was said and may not show in the labels yet."""

    async def judge(
        self, labels: Callable[[], Iterable[Label]], on_answer: Callable[[], None] = lambda: None
    ) -> None:
        """Judge all candidates that wait, by the labels as they are when each one's turn comes.

        Raises
        ------
        TransientError
            If an answer does not come; what was answered is recorded.
        """
        waiting = [name for name, gate in gates_of(labels()).items() if gate.waits_for("evaluate")]
        for name in waiting:
            gate = gates_of(labels()).get(name)
            if gate is not None and gate.waits_for("evaluate") and _key(gate) not in self._spoken:
                with self._tracing.span("judge candidate", {"combee.playbook": name}):
                    await self._judge(gate, on_answer)

    async def _judge(self, gate: Gate, on_answer: Callable[[], None]) -> None:
        assert gate.candidate is not None  # noqa: S101 - it waits for us
        name = gate.candidate.playbook
        versions = [await self._version(name, label.version) for label in (gate.candidate, gate.production)]
        try:
            results = [
                await self._evaluator.evaluate(version, self._questions, lambda _done, _all: on_answer())
                for version in versions
            ]
        except PoisonError as error:
            # Nothing can be said of the candidate: it waits, and the reason is told.
            logger.error("no_verdict", playbook=name, candidate=gate.candidate.version, reason=str(error))
            return
        if stopped := next((result.stopped for result in results if result.unasked), ""):
            logger.warning("no_verdict_yet", playbook=name, candidate=gate.candidate.version, reason=stopped)
            return
        candidate, production = (result.points for result in results)
        said = verdict(
            gate,
            candidate,
            production,
            margin=self._margin,
            judged_by=self._judged_by,
            now_ms=self._clock.now_ms(),
        )
        await self._log.produce(topics.VERDICTS.record(said))
        self._spoken.add(_key(gate))
        logger.info(
            "verdict", playbook=name, candidate=said.candidate, accepts=said.accepts, reason=said.reason
        )

    async def _version(self, name: str, number: int) -> Playbook:
        """Return a version; 0 is the empty one.

        Raises
        ------
        TransientError
            If it is not there, or not yet.
        """
        version = await self._history.exactly(name, number) if number else empty(name)
        if version is None:
            raise TransientError(f"version {number} of {name} is not in the history")
        return version


def _key(gate: Gate) -> Spoken:
    candidate, production = gate.candidate, gate.production
    number = candidate.version if candidate else 0
    return production.playbook, number, production.version, production.moved_at_ms
