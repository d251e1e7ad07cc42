"""``with combee.learning("support/refunds") as run``: one run of an agent, from playbook to outcome."""

import json
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

from combee.core.playbook.shown import only
from combee.sdk.client import AsyncClient, BaseClient, Client, default_client, feedback_text
from combee.sdk.reading import PlaybookRef
from combee.sdk.view import PlaybookView
from combee_schemas.base import Shown
from combee_schemas.playbook import NO_LABEL

LATE_S = 10.0
"""Seconds that an ended run waits for answers that a library reports later."""

CURRENT: Final[ContextVar["Run | None"]] = ContextVar("combee_run", default=None)
"""The run that calls are recorded to; each task and thread has its own."""


class Run:
    """One run of an agent: its playbook, steps and outcome; it becomes one trace."""

    def __init__(
        self, client: BaseClient, playbook: PlaybookView, *, task: str = "", budget_tokens: int | None = None
    ) -> None:
        self.trace_id = f"t-{uuid4().hex}"
        self.playbook = playbook.nearest(task, budget_tokens) if task else playbook
        """The playbook shown to the agent; ``run.playbook.prompt()`` is a system message."""
        self.budget_tokens = budget_tokens
        """Token budget: from a larger playbook the entries nearest to the task, or a call's last user message."""
        self.task = task
        """The agent's task; if calls are recorded, their first user message."""
        self.answer = ""
        """The agent's answer; if calls are recorded, the last one."""
        self.metadata: dict[str, str] = {}
        self._client = client
        self._steps: list[str] = []
        self._feedback: list[str] = []
        self._target: str | None = None
        self._success: bool | None = None
        self._score: Mapping[str, float] | float | None = None
        self._prompted: set[str] | None = None
        """Entries shown to calls, None without such a call."""
        self.is_block = False
        """Whether a block encloses the run and hands it over."""
        self._awaited = 0
        self._has_ended = False
        self._lock = threading.Lock()

    def prompt(self, query: str, budget_tokens: int | None = None) -> str:
        """Return the system message of a call that asks ``query``; the entries in it count as shown."""
        budget = budget_tokens if self.budget_tokens is None else self.budget_tokens
        view = self.playbook.nearest(query, budget)
        self._prompted = (self._prompted or set()) | {entry.id for entry in view.entries}
        return view.prompt()

    def _shown(self) -> Shown:
        """Return the entries shown to the agent: those of its calls, else the run's whole playbook."""
        shown = self.playbook.shown()
        if self._prompted is None:
            return shown
        return only(shown, frozenset(self._prompted))

    def step(self, who: str, text: str) -> None:
        """Record a step: a message, a tool's call or its result."""
        self._steps.append(f"{who}: {text}")

    def outcome(
        self,
        feedback: str = "",
        *,
        success: bool | None = None,
        score: Mapping[str, float] | float | None = None,
        target: str | None = None,
        answer: str | None = None,
    ) -> None:
        """Report the outcome: feedback, success, scores, and the right answer if it is known."""
        if text := feedback_text(feedback, success=success):
            self._feedback.append(text)
        self._success = success if success is not None else self._success
        self._score = score if score is not None else self._score
        self._target = target if target is not None else self._target
        self.answer = answer if answer is not None else self.answer

    @property
    def is_judged(self) -> bool:
        """Whether an outcome was reported: feedback, success, a score or the right answer."""
        return bool(self._feedback) or (self._success, self._score, self._target) != (None, None, None)

    def finish(self, error: BaseException | None) -> None:
        """Hand the run over as a trace, unless it is empty or was cancelled."""
        if error is not None and not isinstance(error, Exception):
            return
        if error is not None and not self._feedback:
            self._feedback.append(f"The run ended with {type(error).__name__}: {error}")
        with self._lock:
            self._has_ended = True
            late = LATE_S if self._awaited else 0.0
        if not (late or self.task or self._steps or self.answer):
            return
        self._client.trace(
            self.playbook.name,
            feedback="\n".join(self._feedback),
            target=self._target,
            success=self._success,
            score=self._score,
            trace_id=self.trace_id,
            outcome_within_s=late,
            **self._record(),
        )

    def _record(self) -> dict[str, Any]:
        """Return the trace's fields from recorded calls."""
        return {
            "task": self.task,
            "trajectory": "\n\n".join(self._steps),
            "answer": self.answer,
            "shown": self._shown(),
            "metadata": dict(self.metadata),
        }

    # ---- records of integrations

    def record(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Record the new messages of a conversation, which each call repeats from its start."""
        known = Counter(self._steps)
        for message in messages:
            step = f"{message.get('role', 'message')}: {content(message)}"
            if known[step]:
                known[step] -= 1
            else:
                self._steps.append(step)

    def recorded(self, messages: list[Mapping[str, Any]], answer: str, metadata: Mapping[str, str]) -> None:
        """Record one model call: its new messages and its answer."""
        self.record(messages)
        if not self.task:
            self.task = next((content(message) for message in messages if message.get("role") == "user"), "")
        self.step("assistant", answer)
        self.answer = answer
        self.metadata.update(metadata)

    def expect(self) -> None:
        """Note a call whose answer is reported later, maybe after the run's end; see ``settle``."""
        with self._lock:
            self._awaited += 1

    def settle(self) -> None:
        """Note that an expected call was recorded or failed; the last one completes an ended run."""
        with self._lock:
            self._awaited -= 1
            is_complete = self._has_ended and not self._awaited
        if is_complete:
            self._client.complete(self.trace_id, self._record(), None)


def last_question(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the last user message of a conversation, empty if there is none."""
    return next(
        (content(message) for message in reversed(list(messages)) if message.get("role") == "user"), ""
    )


def tool_calls_text(answer: str, calls: Iterable[tuple[str, str]]) -> str:
    """Return an answer's text with its tool calls (name, arguments) as JSON."""
    named = [{"name": name, "arguments": arguments} for name, arguments in calls]
    parts = [answer, json.dumps(named, ensure_ascii=False) if named else ""]
    return "\n".join(part for part in parts if part)


def content(message: Mapping[str, Any]) -> str:
    """Return a chat message's content as text, with its tool calls."""
    text = message.get("content")
    if isinstance(text, list):
        text = "\n".join(_part(part) for part in text)
    calls = message.get("tool_calls")
    parts = [str(text) if text else "", json.dumps(calls, default=str, ensure_ascii=False) if calls else ""]
    return "\n".join(part for part in parts if part)


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        return str(
            part.get("text") or f"[{part.get('type', 'part')}]"
        )  # images and sound are replaced by their type
    return str(part)


class Learning:
    """The block around one run; see ``learning``."""

    def __init__(
        self, client: BaseClient, ref: PlaybookRef, task: str, budget_tokens: int | None = None
    ) -> None:
        self._client = client
        self._ref = ref
        self._task = task
        self._budget_tokens = budget_tokens
        self._run: Run | None = None
        self._token: Token[Run | None] | None = None

    def _begin(self, view: PlaybookView) -> Run:
        self._run = Run(self._client, view, task=self._task, budget_tokens=self._budget_tokens)
        self._run.is_block = True
        self._token = CURRENT.set(self._run)
        return self._run

    def _end(self, error: BaseException | None) -> None:
        if self._run is not None and self._token is not None:
            CURRENT.reset(self._token)
            self._run.finish(error)

    def __enter__(self) -> Run:
        return self._begin(self._client.read(self._ref))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    async def __aenter__(self) -> Run:
        return self._begin(await self._client.awaited_read(self._ref))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)


def learning(
    playbook: str,
    *,
    client: Client | AsyncClient | None = None,
    label: str = NO_LABEL,
    fallback: str = "",
    caller: str = "",
    task: str = "",
    budget_tokens: int | None = None,
) -> Learning:
    """Return a block, for ``with`` or ``async with``, in which one run of an agent is recorded and then sent.

    Calls through a client of ``wrap_openai`` inside it are injected with this playbook and recorded to this run.
    ``client``: None is the default client, made from ``COMBEE_*`` at its first use. ``budget_tokens``: from a
    larger playbook the run gets the entries nearest to ``task``; without a task each call through ``wrap_openai``
    gets the entries nearest to its last user message. None: the whole playbook. ``caller``: the reader's name, see
    ``Client.playbook``. An exception inside the block is recorded as feedback and raised on; Combee itself never
    raises.
    """
    ref = PlaybookRef(name=playbook, label=label, fallback=fallback, caller=caller)
    return Learning(client or default_client(), ref, task, budget_tokens)
