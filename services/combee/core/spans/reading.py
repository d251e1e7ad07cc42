"""A run's spans read as a trajectory: questions, messages, calls, results, failures and judgements.

Messages are those of the GenAI conventions: ``{"role", "parts": [{"type", …}]}``, as attributes (JSON, or structured)
of a span, or of its event ``gen_ai.client.inference.operation.details``. Malformed messages are left out.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from combee.core.formats.intake import MAX_TRACE_BYTES
from combee.core.formats.trajectories.trajectory import Trajectory, call_text, text_of, trace_of, verdict_text
from combee.core.spans.gathering import SpanRun
from combee.core.spans.span import CALLS, EVALUATION, FEEDBACK, PLAYBOOK, SUCCESS, TOOL, Event, Span
from combee.core.text.condensing import Step
from combee.core.text.redact import redacted
from combee_schemas.base import MAX_SCORES
from combee_schemas.trace import Trace

DETAILS = "gen_ai.client.inference.operation.details"
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
CALL_ID = "gen_ai.tool.call.id"
MODEL = "gen_ai.request.model"
TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
LARGEST_SCORE, LONGEST_SCORE_NAME = 1e15, 40
NS_PER_MS = 1_000_000
AROUND_CHARS = 2_000
"""Maximum characters of an enclosing span's text, which every agent below it gets."""
AROUND_EVENTS = 100
"""Maximum number of events examined in enclosing spans, because every agent below them reads these."""


def playbook_named(run: SpanRun) -> str:
    """Return the playbook named by the agent's span, or by the nearest enclosing one; empty: none names it."""
    named = (span.attributes.get(PLAYBOOK) for span in (*([run.root] if run.root else ()), *run.above))
    inside = (span.attributes.get(PLAYBOOK) for span in (run.spans if run.root is None else ()))
    return next((str(name) for name in (*named, *inside) if name), "")


def trace_from(run: SpanRun, playbook: str) -> Trace | None:
    """Return a run as a trace; None: its spans hold no texts."""
    trajectory = trajectory_of(run)
    if not (trajectory.task or trajectory.steps or trajectory.answer):
        return None
    made = trace_of(
        trajectory,
        playbook,
        source="opentelemetry",
        place="",
        trace_bytes=MAX_TRACE_BYTES,
        redact=redacted,
    )
    ended_ns = max(span.ended_ns for span in run.spans)
    own = {"trace_id": run.id, "created_at_ms": ended_ns // NS_PER_MS, "metadata": dict(trajectory.metadata)}
    return made.model_copy(update=own)


def trajectory_of(run: SpanRun) -> Trajectory:
    """Return a run's trajectory."""
    conversation = _Conversation(run)
    steps = tuple(conversation.steps())
    root = run.root
    asked = conversation.said_in(root, INPUT, "user") if root else []
    answered = conversation.said_in(root, OUTPUT, "assistant") if root else []
    success = _told(run, SUCCESS)
    scores, judged = _evaluations(run)
    failed = f"The run failed: {root.error}" if root and root.error is not None else ""
    return Trajectory(
        task=(asked or conversation.asked or [""])[-1],
        steps=steps,
        answer=(answered or conversation.answered or [""])[-1],
        feedback=verdict_text(failed, str(_told(run, FEEDBACK) or ""), *judged),
        success=success if isinstance(success, bool) else False if failed else None,
        score=scores,
        agent=str(root.attributes.get("gen_ai.agent.name") or "") if root else "",
        metadata=_metadata(run),
    )


def _told(run: SpanRun, name: str) -> Any:
    """Return an attribute about the run's result from the agent's span, or the nearest enclosing one; None: none."""
    if run.root and name in run.root.attributes:
        return run.root.attributes[name]
    told = next((span.attributes[name] for span in run.above if name in span.attributes), None)
    return told[:AROUND_CHARS] if isinstance(told, str) else told


class _Conversation:
    """The messages of a run's calls, each once: every call repeats all earlier ones."""

    def __init__(self, run: SpanRun) -> None:
        self._run = run
        self.asked: list[str] = []
        self.answered: list[str] = []
        tools = [span for span in run.spans if span.operation == TOOL]
        self._told_by_spans = {
            str(span.attributes.get(CALL_ID)) for span in tools if CALL_ID in span.attributes
        }

    def steps(self) -> Iterator[Step]:
        """Yield the run's steps in their order."""
        calls = [span for span in self._run.spans if span.operation in CALLS and _speaks(span)]
        root = self._run.root
        repeated: Counter[tuple[str, str]] = Counter()
        if root and not calls:
            yield from self._messages(root, INPUT, repeated)
        for span in self._run.spans:
            if span.operation == TOOL:
                yield _tool_step(span)
            elif span.operation in CALLS:
                yield from self._messages(span, INPUT, repeated)
                yield from self._messages(span, OUTPUT, repeated, is_new=True)
                if span.error is not None:
                    yield Step("model", f"The call failed: {span.error}", has_failed=True)
        if root and not calls:
            yield from self._messages(root, OUTPUT, repeated, is_new=True)

    def said_in(self, span: Span, name: str, role: str) -> list[str]:
        """Return one role's text in a span's messages."""
        return [text for who, text, is_plain in self._said(span, name) if who == role and is_plain and text]

    def _messages(
        self, span: Span, name: str, repeated: Counter[tuple[str, str]], *, is_new: bool = False
    ) -> Iterator[Step]:
        known, new = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for who, text, is_plain in self._said(span, name):
            if not is_new and known[who, text] < repeated[who, text]:
                known[who, text] += 1
                continue
            new[who, text] += 1
            if is_plain and text and who == "user":
                self.asked.append(text)
            if is_plain and text and who == "assistant":
                self.answered.append(text)
            if text:
                yield Step(who, text)
        repeated.update(new)

    def _said(self, span: Span, name: str) -> Iterator[tuple[str, str, bool]]:
        """Yield role, text, and whether the text was spoken.

        System messages are left out: an agent's instructions and its playbook are no news.
        """
        for message in _listed(_value(span, name)):
            role = str(message.get("role") or ("assistant" if name == OUTPUT else "user"))
            if role in ("system", "developer"):
                continue
            parts = message.get("parts", message.get("content"))
            if isinstance(parts, list):
                texts = [self._part(part) for part in parts if isinstance(part, Mapping)]
                is_plain = any(part.get("type") == "text" for part in parts if isinstance(part, Mapping))
                yield role, "\n".join(filter(None, texts)), is_plain
            elif parts:
                yield role, text_of(parts), True

    def _part(self, part: Mapping[str, Any]) -> str:
        match part.get("type"):
            case "text" | "reasoning":
                return text_of(part.get("content"))
            case "tool_call":
                return call_text(part.get("name"), part.get("arguments"))
            case "tool_call_response" if str(part.get("id")) in self._told_by_spans:
                return ""
            case "tool_call_response":
                return text_of(part.get("response", part.get("result")))
            case other:
                return f"[{other}]"


def _tool_step(span: Span) -> Step:
    name = span.attributes.get("gen_ai.tool.name") or span.name
    call = call_text(name, _parsed(span.attributes.get("gen_ai.tool.call.arguments", "")))
    if span.error is not None:
        return Step("tool", f"{call}\nfailed: {span.error}", has_failed=True)
    return Step("tool", f"{call}\n{text_of(_parsed(span.attributes.get('gen_ai.tool.call.result', '')))}")


def _speaks(span: Span) -> bool:
    return any(_value(span, name) for name in (INPUT, OUTPUT))


def _value(span: Span, name: str) -> Any:
    """Return an attribute of a span, or of its event with the details."""
    details = (event.attributes for event in span.events if event.name == DETAILS)
    return next((held[name] for held in (span.attributes, *details) if held.get(name)), None)


def _parsed(value: Any) -> Any:
    """Return the JSON value in a text; other texts unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _listed(value: Any) -> Iterator[Mapping[str, Any]]:
    messages = _parsed(value)
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping):
            yield message


def _evaluations(run: SpanRun) -> tuple[dict[str, float], list[str]]:
    """Return the scores in events, and their explanations in words."""
    scores: dict[str, float] = {}
    words = []
    for event, most_chars in _judgements(run):
        attributes = event.attributes
        name = str(attributes.get("gen_ai.evaluation.name") or "score")[:LONGEST_SCORE_NAME]
        value = _score(attributes.get("gen_ai.evaluation.score.value"))
        if value is not None and (name in scores or len(scores) < MAX_SCORES):
            scores[name] = value
        details = [attributes.get(f"gen_ai.evaluation.{part}") for part in ("score.label", "explanation")]
        if any(details):
            words.append(f"{name}: {', '.join(str(part) for part in details if part)}"[:most_chars])
    return scores, words


def _judgements(run: SpanRun) -> Iterator[tuple[Event, int | None]]:
    """Yield the events that judge a run, each with the maximum length of its words; None: no maximum."""
    inside = (event for span in run.spans for event in span.events)
    yield from ((event, None) for event in inside if event.name == EVALUATION)
    around = islice((event for span in run.above for event in span.events), AROUND_EVENTS)
    judging = (event for event in around if event.name == EVALUATION)
    yield from ((event, AROUND_CHARS) for event in islice(judging, MAX_SCORES))


def _score(value: Any) -> float | None:
    """Return a valid score."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) <= LARGEST_SCORE else None


def _metadata(run: SpanRun) -> dict[str, str]:
    """Return metadata about the run's calls, by OpenTelemetry's names."""
    calls = [span.attributes for span in run.spans if span.operation in CALLS]
    models = dict.fromkeys(str(call[MODEL]) for call in calls if call.get(MODEL))
    metadata = {"otel.trace_id": run.spans[0].trace_id}
    if models:
        metadata[MODEL] = ", ".join(models)
    for name in TOKENS:
        counted = [call[name] for call in calls if isinstance(call.get(name), int)]
        if counted:
            metadata[name] = str(sum(counted))
    return metadata
