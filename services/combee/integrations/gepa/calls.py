"""The concurrent model calls of GEPA's proposals, in threads or as one batch; a repeat pays for no call twice."""

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

REPEAT_PROMPT = "Your last reply could not be used: {problem}. Answer again, as asked at first."

Messages = str | list[dict[str, Any]]
"""GEPA's prompt: a text, or messages if there are images."""
CallId = tuple[int, int, int, int, int]
"""Job, component, level, place and repeat, so that two equal prompts are two calls."""


@dataclass(slots=True)
class Call:
    """One logical model call, with its last prompt and reply."""

    id: CallId
    prompt: Messages
    reply: str = ""
    made: int = 0
    """Number of requests: one, or two if the first reply could not be used."""

    @property
    def text(self) -> str | None:
        """The new text, None for an unusable reply, such as a truncated one."""
        reply = clean(self.reply)
        if method.problem(reply) is not None:
            return None
        return str(InstructionProposalSignature.output_extractor(reply)["new_instruction"])

    def repeat(self, problem: str) -> None:
        """Prepare the call's repeat, whose prompt names the problem of the reply."""
        request = REPEAT_PROMPT.format(problem=problem)
        prompt = self.prompt
        self.prompt = (
            f"{prompt}\n\n{request}" if isinstance(prompt, str) else [*prompt, *as_messages(request)]
        )
        self.id = (*self.id[:4], 1)


@dataclass(slots=True)
class Attempt:
    """A failed batch of jobs, whose paid replies are reused when the same jobs are tried again."""

    jobs: tuple[str, ...]
    replies: dict[CallId, tuple[Messages, str]] = field(default_factory=dict)
    next_job: int = 0

    def reply(self, call: Call) -> str | None:
        """Return the earlier reply to this call."""
        prompt, reply = self.replies.get(call.id, (None, None))
        return reply if prompt == call.prompt else None


class _CountingLM(models.TrackingLM):
    """GEPA's token estimate, made thread-safe."""

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
    """Return the model: GEPA's client of LiteLLM for a name, else the callable with its tokens counted."""
    if isinstance(lm, str):
        return models.LM(lm, **(lm_kwargs or {}))
    return lm if hasattr(lm, "total_cost") else _CountingLM(lm)


def knows_cost(lm: Callable[[Any], str] | str) -> bool:
    """Return whether a model reports its provider's cost; GEPA's estimate is zero."""
    return isinstance(lm, str) or (hasattr(lm, "total_cost") and not isinstance(lm, models.TrackingLM))


def as_messages(prompt: Messages) -> list[dict[str, Any]]:
    """Return a prompt as a chat."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Makes calls, with repeats and concurrency."""

    max_workers: int
    retries: int
    retry_wait_s: float

    def ask(self, lm: Any, calls: Sequence[Call], kept: Attempt | None, *, batched: bool) -> None:
        """Fill in the replies; a call with an unusable reply is repeated once."""
        self._answer(lm, calls, kept, batched=batched)
        unusable = [(call, problem) for call in calls if (problem := method.problem(clean(call.reply)))]
        for call, problem in unusable:
            call.repeat(problem)
        self._answer(lm, [call for call, _ in unusable], kept, batched=batched)

    def _answer(self, lm: Any, calls: Sequence[Call], kept: Attempt | None, *, batched: bool) -> None:
        """Make calls concurrently; if one fails, the others' replies are kept."""
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
        """Yield the replies, before any error is raised; calls that have not begun by then are not made."""
        workers = min(self.max_workers, len(calls))
        if workers <= 1:
            for call in calls:
                yield call, self._complete(lm, call.prompt)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="combee-gepa") as pool:
            # Threads get a copy of the caller's context, where tracing and DSPy keep their settings.
            running = {
                pool.submit(copy_context().run, self._complete, lm, call.prompt): call for call in calls
            }
            try:
                wait(running, return_when=FIRST_EXCEPTION)
            finally:
                pool.shutdown(cancel_futures=True)
        ended = [future for future in running if not future.cancelled()]
        # Failed calls come last, and raise.
        for future in sorted(ended, key=lambda future: future.exception() is not None):
            yield running[future], future.result()

    def _complete(self, lm: Any, prompt: Messages) -> str:
        for repeat in range(self.retries):
            try:
                return str(lm(prompt) or "")
            except Exception:  # noqa: BLE001 - a callable may raise anything
                time.sleep(self.retry_wait_s * 2**repeat)
        return str(lm(prompt) or "")


def _in_a_batch(lm: Any, calls: Sequence[Call]) -> Iterator[tuple[Call, str]]:
    yield from zip(calls, lm.batch_complete([as_messages(call.prompt) for call in calls]), strict=True)
