"""The model calls of GEPA's proposals: at once, in threads or as one batch; a failed attempt pays for none twice."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from gepa import lm as models
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from combee.core.methods import gepa as method
from combee.core.text.forms import clean
from combee_schemas.model import CHARS_PER_TOKEN

AGAIN = "Your last reply could not be used: {problem}. Answer again, as asked at first."

Messages = str | list[dict[str, Any]]
"""What GEPA asks a model: a text, or messages where there are images."""
CallId = tuple[int, int, int, int, int]
"""Job, component, level, place and repeat: two equal prompts are two calls."""


@dataclass(slots=True)
class Call:
    """One logical model call, with what it was last asked and what came back."""

    id: CallId
    prompt: Messages
    reply: str = ""
    made: int = 0
    """Once, or twice where the first reply could not be used."""

    @property
    def text(self) -> str | None:
        """The new text; None: the reply must not be adopted, such as one that was cut off."""
        reply = clean(self.reply)
        if method.problem(reply) is not None:
            return None
        return str(InstructionProposalSignature.output_extractor(reply)["new_instruction"])

    def repeat(self, problem: str) -> None:
        """Become the same call again, which is told what was wrong with the reply."""
        said = AGAIN.format(problem=problem)
        prompt = self.prompt
        self.prompt = f"{prompt}\n\n{said}" if isinstance(prompt, str) else [*prompt, *as_messages(said)]
        self.id = (*self.id[:4], 1)


@dataclass(slots=True)
class Attempt:
    """A batch of jobs that failed: what it paid for already is used again when the same jobs come again."""

    jobs: tuple[str, ...]
    replies: dict[CallId, tuple[Messages, str]] = field(default_factory=dict)
    next_job: int = 0

    def reply(self, call: Call) -> str | None:
        """Return what this very call was answered before."""
        prompt, reply = self.replies.get(call.id, (None, None))
        return reply if prompt == call.prompt else None


class _CountingLM(models.TrackingLM):
    """GEPA's estimate of tokens, from several threads."""

    def __init__(self, function: Callable[[Any], str]) -> None:
        super().__init__(function)
        self._lock = threading.Lock()

    def __call__(self, prompt: Messages) -> str:
        reply = str(self._fn(prompt) or "")
        with self._lock:
            self._total_tokens_in += max(1, len(str(prompt)) // CHARS_PER_TOKEN)
            self._total_tokens_out += max(1, len(reply) // CHARS_PER_TOKEN)
        return reply


def language_model(lm: Callable[[Any], str] | str, lm_kwargs: Mapping[str, Any] | None) -> Any:
    """Return what is asked: GEPA's client of LiteLLM for a name, else the callable with its tokens counted."""
    if isinstance(lm, str):
        return models.LM(lm, **(lm_kwargs or {}))
    return lm if hasattr(lm, "total_cost") else _CountingLM(lm)


def knows_cost(lm: Callable[[Any], str] | str) -> bool:
    """Return whether a model tells what its provider asks for; GEPA's estimate says zero."""
    return isinstance(lm, str) or (hasattr(lm, "total_cost") and not isinstance(lm, models.TrackingLM))


def as_messages(prompt: Messages) -> list[dict[str, Any]]:
    """Return a prompt as a chat."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """How calls are made."""

    max_workers: int
    retries: int
    retry_wait_s: float

    def ask(self, lm: Any, calls: Sequence[Call], kept: Attempt | None, *, batched: bool) -> None:
        """Fill in the replies; what could not be used is asked once more."""
        self._answer(lm, calls, kept, batched=batched)
        unusable = [(call, problem) for call in calls if (problem := method.problem(clean(call.reply)))]
        for call, problem in unusable:
            call.repeat(problem)
        self._answer(lm, [call for call, _ in unusable], kept, batched=batched)

    def _answer(self, lm: Any, calls: Sequence[Call], kept: Attempt | None, *, batched: bool) -> None:
        """Make calls at once; if one fails, what the others answered is kept."""
        due = []
        for call in calls:
            call.made += 1
            known = kept.reply(call) if kept else None
            if known is None:
                due.append(call)
            else:
                call.reply = known
        answers = _in_a_batch(lm, due) if batched and len(due) > 1 else self._in_threads(lm, due)
        for call, reply in answers:
            call.reply = reply.strip()
            if kept:
                kept.replies[call.id] = (call.prompt, call.reply)

    def _in_threads(self, lm: Any, calls: Sequence[Call]) -> Iterator[tuple[Call, str]]:
        """Yield the replies, those beside an error first; what was not begun by then is not paid for."""
        workers = min(self.max_workers, len(calls))
        if workers <= 1:
            for call in calls:
                yield call, self._complete(lm, call.prompt)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="combee-gepa") as pool:
            # The caller's context goes along: tracing and DSPy keep their settings there.
            running = {
                pool.submit(copy_context().run, self._complete, lm, call.prompt): call for call in calls
            }
            try:
                wait(running, return_when=FIRST_EXCEPTION)
            finally:
                pool.shutdown(cancel_futures=True)
        ended = [future for future in running if not future.cancelled()]
        # Those that raised come last, and raise.
        for future in sorted(ended, key=lambda future: future.exception() is not None):
            yield running[future], future.result()

    def _complete(self, lm: Any, prompt: Messages) -> str:
        for repeat in range(self.retries):
            try:
                return str(lm(prompt) or "")
            except Exception:  # noqa: BLE001 - whatever a callable raises
                time.sleep(self.retry_wait_s * 2**repeat)
        return str(lm(prompt) or "")


def _in_a_batch(lm: Any, calls: Sequence[Call]) -> Iterator[tuple[Call, str]]:
    yield from zip(calls, lm.batch_complete([as_messages(call.prompt) for call in calls]), strict=True)
