"""Runs on the built-in family, and the stand-in's reflections on them, without the services."""

from collections.abc import Iterable, Sequence
from random import Random

from combee.core.methods.ace import reflect_prompt
from combee.core.text.shortening import task_excerpt
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation
from combee_schemas.trace import Trace
from combee_sim.family.family import questions, read_question
from combee_sim.family.knowledge import NOTHING_KNOWN, Knowledge
from combee_sim.family.quantities import QUANTITIES
from combee_sim.inprocess import as_request
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.respond import respond

PLAYBOOK = "simulated"
FAMILY_SIZE = 50
"""Number of conventions in the family, as many as the Formula data have formulas."""


def family_traces(rng: Random, count: int) -> tuple[Trace, ...]:
    """Return runs of an agent without lessons on the built-in family."""
    drawn = questions(rng, QUANTITIES[:FAMILY_SIZE])
    asked = [next(drawn) for _ in range(count)]
    return tuple(_trace(n, sample.text, sample.target) for n, sample in enumerate(asked))


def _trace(number: int, task: str, target: str) -> Trace:
    asked = read_question(task)
    answer = asked.naive() if asked else None
    return Trace(
        trace_id=f"simulated-{number}", playbook=PLAYBOOK, task=task, answer=answer or "", target=target
    )


def task_traces(rows: Sequence[tuple[str, str]]) -> tuple[Trace, ...]:
    """Return runs that gave no answer, for tasks with their targets."""
    return tuple(_trace(n, task, target) for n, (task, target) in enumerate(rows))


def reflections_on(
    traces: Sequence[Trace],
    seed: int = 0,
    *,
    knowledge: Knowledge = NOTHING_KNOWN,
    modes: Modes = NO_MODES,
) -> tuple[Reflection, ...]:
    """Return the stand-in's reflection on each run, made through the real prompt."""
    requests = (as_request(reflect_prompt(trace, ())) for trace in traces)
    replies = (respond(request, seed, knowledge, modes=modes).reply for request in requests)
    return tuple(
        Reflection(reflection_id=trace.trace_id, playbook=PLAYBOOK, task_excerpt=task_excerpt(trace), **reply)
        for trace, reply in zip(traces, replies, strict=True)
    )


def entries_stated(operations: Sequence[Operation], known: Iterable[str]) -> int:
    """Return the number of entries in an update as the paper counts them: repeats are included.

    ``known``: entries that the model named instead of repeating them.
    """
    return len(operations) + len(set(known))
