"""Shared by all integrations: show the playbook, record runs, hand them over."""

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypedDict, Unpack

from combee.sdk.client import BaseClient, default_client
from combee.sdk.learning import CURRENT, Run
from combee.sdk.logs import LogOnce, guarded
from combee.sdk.reading import PlaybookRef
from combee.sdk.view import PlaybookView
from combee_schemas.playbook import NO_LABEL

MAX_OPEN = 1_000
"""Maximum number of open runs, as a library may never report a run's end."""


NO_OUTCOME = (
    "runs without an outcome teach %s what the model believes, not what worked: say how each run went with"
    " on_end=lambda run: run.outcome(success=…), or with run.outcome(…) in a block of combee.learning"
)


class Options(TypedDict, total=False):
    """Options of every integration other than the playbook's name."""

    label: str
    """This option and the next two are those of ``Client.playbook``."""
    fallback: str
    caller: str
    combee: BaseClient | None
    """The client, None for the default client."""
    budget_tokens: int | None
    """Token budget: from a larger playbook a call is shown the entries nearest to its last user message."""
    on_end: Callable[[Run], object] | None
    """Called with each run before it is handed over, for example for ``run.outcome(success=True)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrumentation:
    """The playbook shown to a library's runs, and the client that records them."""

    client: BaseClient
    ref: PlaybookRef | None = None
    """The playbook; None records only runs inside ``learning``."""
    budget_tokens: int | None = None
    """Token budget: from a larger playbook a call is shown the entries nearest to its last user message."""
    on_end: Callable[[Run], object] | None = None
    """Called with each run before it is handed over, for example to report its outcome."""
    once: LogOnce = field(default_factory=LogOnce)

    @classmethod
    def of(cls, playbook: str | None, **options: Unpack[Options]) -> Self:
        """Return an instrumentation from the options of every integration."""
        ref = None
        if playbook:
            ref = PlaybookRef(
                name=playbook,
                label=options.get("label", NO_LABEL),
                fallback=options.get("fallback", ""),
                caller=options.get("caller", ""),
            )
        return cls(
            client=options.get("combee") or default_client(),
            ref=ref,
            budget_tokens=options.get("budget_tokens"),
            on_end=options.get("on_end"),
        )

    def playbook(self) -> PlaybookView | None:
        """Return the playbook of a run outside any block; wait only for a playbook that was never read."""
        if self.ref is None or CURRENT.get() is not None:
            return None
        return self.client.read(self.ref)

    async def awaited_playbook(self) -> PlaybookView | None:
        """See ``playbook``."""
        if self.ref is None or CURRENT.get() is not None:
            return None
        return await self.client.awaited_read(self.ref)

    def begin(self, view: PlaybookView | None, *, task: str = "") -> Run | None:
        """Return the enclosing block's run, else a new one that is shown ``view``, None if runs are not recorded."""
        run = CURRENT.get()
        if run is None and view is not None:
            run = Run(self.client, view)
        if run is not None:
            run.task = run.task or task
        return run

    def end(self, run: Run, error: BaseException | None) -> None:
        """Hand a run over, except a block's run, which the block hands over."""
        if run.is_block:
            return
        with guarded("on_end failed"):
            if self.on_end is not None and (error is None or isinstance(error, Exception)):
                self.on_end(run)
        if self.on_end is None and error is None and not run.is_judged:
            self.once.warn("outcome", NO_OUTCOME, run.playbook.name)
        with guarded("a run could not be recorded"):
            run.finish(error)


class OpenRuns:
    """The open runs of a library that identifies them by ids; for any thread."""

    def __init__(self, instrumentation: Instrumentation) -> None:
        self._instrumentation = instrumentation
        self._runs: dict[Hashable, Run] = {}
        self._lock = threading.Lock()

    def open(self, run_id: Hashable, view: PlaybookView | None, *, task: str = "") -> Run | None:
        """Begin a run unless it is open; return None if runs are not recorded."""
        oldest = None
        with self._lock:
            run = self._runs.get(run_id) or self._instrumentation.begin(view, task=task)
            if run is not None:
                self._runs[run_id] = run
            if len(self._runs) > MAX_OPEN:
                oldest = self._runs.pop(next(iter(self._runs)))
        if oldest is not None:
            self._instrumentation.end(oldest, None)
        return run

    def get(self, run_id: Hashable) -> Run | None:
        """Return an open run."""
        return self._runs.get(run_id)

    def forget(self, run_id: Hashable) -> Run | None:
        """Remove and return an open run."""
        with self._lock:
            return self._runs.pop(run_id, None)

    def end(self, run_id: Hashable, error: BaseException | None = None) -> None:
        """Hand a run over, if it is open."""
        run = self.forget(run_id)
        if run is not None:
            self._instrumentation.end(run, error)

    def abandon(self, run_id: Hashable, why: str) -> None:
        """Hand over a run that ended without a report; ``why`` is its feedback."""
        run = self.get(run_id)
        if run is not None and not run.is_block:
            run.outcome(why)
        self.end(run_id)


def metadata_of(**fields: Any) -> Mapping[str, str]:
    """Return a call's attributes under OpenTelemetry's names (GenAI semantic conventions).

    ``request_model``, ``response_model``, ``finish_reasons``, ``input_tokens``, ``output_tokens``.
    """
    names = {
        "request_model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "finish_reasons": "gen_ai.response.finish_reasons",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
    }
    return {names[field]: str(value) for field, value in fields.items() if value not in (None, "")}


def in_front(prompt: str, system: str | Sequence[Any] | None) -> str | list[Any]:
    """Return a system message with a playbook in front: first, so that providers' prompt caches hit."""
    if system is None or isinstance(system, str):
        return "\n\n".join(part for part in (prompt, system) if part)
    return [{"type": "text", "text": prompt}, *system] if prompt else list(system)
