"""The stand-in server's options, state and decision per call: reply, fault, delay; no HTTP here."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TextIO

from combee.adapters.ports import Clock
from combee_sim.chance import draw
from combee_sim.family.knowledge import NOTHING_KNOWN, Knowledge
from combee_sim.law.law import LAW, Law
from combee_sim.modes import NO_MODES, Modes
from combee_sim.prefix_cache import PrefixCache
from combee_sim.roles.respond import Simulated, respond
from combee_sim.server.faults import Fault, FaultRates, TimesSeen
from combee_sim.server.latency import Latency

Outcome = Literal["ok", "down", "too_long", "abandoned", "stopped"] | Fault


class CallLog:
    """Appends lines to a file, or nowhere when there is no path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, **fields: Any) -> None:
        """Append one line."""
        if self._file is not None:
            self._file.write(json.dumps(fields) + "\n")
            self._file.flush()


HUGE_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """Seed, latency, faults, call log and address of a stand-in server."""

    host: str = "127.0.0.1"
    port: int = 0
    """Port; 0 takes a free one."""
    seed: int = 0
    latency: Latency = field(default_factory=Latency)
    faults: FaultRates = field(default_factory=FaultRates)
    down_for_s: float = 0.0
    """Seconds from the start during which the server answers 503."""
    retry_after_s: float = 1.0
    hang_s: float = 600.0
    huge_bytes: int = HUGE_BYTES
    context_tokens: int | None = None
    """Longer prompts are refused as by a real server; None: no limit."""
    law: Law = LAW
    """The aggregator's overload law."""
    modes: Modes = NO_MODES
    """The model's failures in addition to the law."""
    call_log: Path | None = None
    knowledge: Knowledge = NOTHING_KNOWN
    """Knowledge of questions that do not contain their rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call as decided on arrival."""

    answer: Simulated
    request: Mapping[str, Any] = field(repr=False)
    cached_tokens: int
    """Part of the input tokens that a server's prompt cache would report."""
    fate: Outcome
    delay_s: float
    started_ms: int


class StandIn:
    """Decides and counts calls; faults can be changed at run time."""

    def __init__(self, options: SimOptions, clock: Clock, log: CallLog) -> None:
        self.options = options
        self.faults = options.faults
        self._clock = clock
        self._log = log
        self._seen = TimesSeen()
        self._down_until = clock.monotonic() + options.down_for_s
        self._calls: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._cache = PrefixCache()
        self._texts_embedded = self._tokens_in = self._tokens_cached = self._tokens_out = self._in_flight = (
            self._most_in_flight
        ) = 0

    def set_faults(self, rates: FaultRates, *, down_for_s: float = 0.0) -> None:
        """Replace all fault rates, and be down for a while from now on."""
        self.faults = rates
        self._down_until = self._clock.monotonic() + down_for_s

    def begin(self, body: Mapping[str, Any]) -> Call:
        """Decide what happens to a call; every call begun must be ended."""
        options = self.options
        answer = respond(body, options.seed, options.knowledge, law=options.law, modes=options.modes)
        seen = self._seen.count(answer.prompt_hash)
        chance = draw("latency", self.options.seed, answer.prompt_hash, seen)
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)
        return Call(
            answer=answer,
            request=body,
            cached_tokens=min(self._cache.cached_tokens(body, self._clock.monotonic()), answer.tokens_in),
            fate=self._fate(answer, seen),
            delay_s=self.options.latency.seconds(chance),
            started_ms=self._clock.now_ms(),
        )

    @property
    def is_down(self) -> bool:
        """Whether every call fails just now."""
        return self._clock.monotonic() < self._down_until

    def embedded(self, texts: int, tokens: int) -> None:
        """Count texts that were turned into vectors."""
        self._texts_embedded += texts
        self._tokens_in += tokens

    def _fate(self, answer: Simulated, times_seen: int) -> Outcome:
        if self.is_down:
            return "down"
        if self.options.context_tokens is not None and answer.tokens_in > self.options.context_tokens:
            return "too_long"
        return self.faults.hit(self.options.seed, answer.prompt_hash, times_seen) or "ok"

    def end(self, call: Call, outcome: Outcome) -> None:
        """Count and log a call that was answered, or never will be."""
        answer = call.answer
        tokens_out = answer.tokens_out if outcome == "ok" else 0
        if outcome == "ok":
            self._cache.answered(call.request, self._clock.monotonic())
        self._in_flight -= 1
        self._calls[answer.role] += 1
        self._outcomes[outcome] += 1
        self._tokens_in += answer.tokens_in
        self._tokens_cached += call.cached_tokens
        self._tokens_out += tokens_out
        self._log.write(
            start_ms=call.started_ms,
            end_ms=self._clock.now_ms(),
            role=answer.role,
            tokens_in=answer.tokens_in,
            cached_tokens=call.cached_tokens,
            tokens_out=tokens_out,
            prompt_hash=answer.prompt_hash,
            outcome=outcome,
            simulated=True,
        )

    def stats(self) -> dict[str, Any]:
        """Return all counts since the start."""
        return {
            "simulated": True,
            "law": self.options.law.count.__name__,
            "modes": list(self.options.modes.summary()),
            "calls": dict(self._calls),
            "outcomes": dict(self._outcomes),
            "texts_embedded": self._texts_embedded,
            "tokens_in": self._tokens_in,
            "tokens_cached": self._tokens_cached,
            "tokens_out": self._tokens_out,
            "in_flight": self._in_flight,
            "most_in_flight": self._most_in_flight,
        }
