"""The gates of a deployment, from the topic of labels: what agents read, and what is being judged."""

from collections.abc import Collection, Mapping
from contextlib import aclosing
from typing import Any

from combee.core.gate.gate import Gate, gates_of
from combee.history import all_labels, messages
from combee.ports import Log
from combee_schemas import topics
from combee_schemas.gate import Decision, Judge, Verdict


async def gates(log: Log) -> dict[str, Gate]:
    """Return the gates by playbook."""
    return gates_of(await all_labels(log))


async def decisions_of(log: Log, name: str) -> list[Decision]:
    """Return what was decided at a playbook's gate, oldest first."""
    async with aclosing(messages(log, topics.DECISIONS, name)) as read:
        return [decision async for decision in read]


def gate_document(gate: Gate | None) -> dict[str, Any] | None:
    """Return the stable shape of a gate in JSON."""
    if gate is None:
        return None
    candidate = gate.candidate
    return {
        "judges": list(gate.judges),
        "production": gate.production.version,
        "candidate": candidate.version if candidate else None,
        "since_ms": candidate.moved_at_ms if candidate else None,
        "waits_for": [judge for judge in gate.judges if gate.waits_for(judge)],
    }


def gate_text(document: Mapping[str, Any]) -> str:
    """Return in words what ``gate_document`` says."""
    production = f"version {document['production']}" if document["production"] else "no version yet"
    reads = f"agents read {production} (gate: {', '.join(document['judges'])})"
    if document["candidate"] is None:
        return f"{reads}; nothing waits"
    waits = ", ".join(document["waits_for"]) or "a decision"
    return f"{reads}; version {document['candidate']} waits for {waits}"


def verdict_text(verdict: Verdict) -> str:
    """Return in words what a judge said, with its reason and figures."""
    word = "accepts" if verdict.accepts else "rejects"
    about = "; ".join(part for part in (verdict.reason, verdict_figures(verdict)) if part)
    return f"{verdict.judge} {word} version {verdict.candidate}: {about}"


def verdict_figures(verdict: Verdict) -> str:
    """Return the numbers that a verdict rests on."""
    return ", ".join(f"{key} {value:g}" for key, value in verdict.figures.items())


def judgement_text(
    candidate: int, production: int, waited_for: Collection[Judge], *, accepts: bool, in_part: bool = False
) -> str:
    """Return in words what became of a candidate that a person approved or rejected.

    ``production`` is what agents read afterwards, ``waited_for`` the judges that had not spoken before.
    """
    if in_part:
        rest = "what is left of it is the next candidate"
        return f"version {candidate} is rejected in part, {rest}; agents go on reading version {production}"
    if not accepts:
        return f"version {candidate} is rejected, agents go on reading version {production}"
    if production == candidate:
        return f"agents read version {candidate} from now on"
    waits = ", ".join(judge for judge in waited_for if judge != "approve")
    return f"version {candidate} is approved, and waits for {waits}"
