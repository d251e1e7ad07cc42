"""The stand-in as agent: right if and only if the playbook or text before it says how."""

from typing import Any

from combee.sim.family.conventions import Convention, read_convention
from combee.sim.family.family import Asked, read_question
from combee.sim.family.lessons import ShownEntry
from combee.sim.roles.reading import Reading

_QUESTION_FIELDS = ("question", "task", "prompt", "input")


def answer(reading: Reading) -> dict[str, Any]:
    """Return the agent's reply: computed from the first entry, or line of text, about the quantity asked for."""
    asked = read_question(_question(reading))
    if asked is None:
        return _reply("The simulated agent does not know this kind of task.", [], "unknown")
    entry, convention = _lesson(reading, asked)
    learned = convention.answer(asked.operands) if convention else None
    if learned is None:
        reason = f"Nothing known about the {asked.quantity}: the plain quotient is given."
        return _reply(reason, [], asked.naive() or "unknown")
    source = f"Entry {entry.id}" if entry else "The text"
    ids = [entry.id] if entry else []
    return _reply(f"{source} says how the {asked.quantity} is reported.", ids, learned)


def _question(reading: Reading) -> str:
    for value in reversed(reading.objects):
        for name in _QUESTION_FIELDS:
            if isinstance(text := value.get(name), str):
                return text
    return reading.last_user_text


def _lesson(reading: Reading, asked: Asked) -> tuple[ShownEntry | None, Convention | None]:
    for entry in reading.entries:
        convention = read_convention(entry.content)
        if convention is not None and convention.quantity == asked.quantity:
            return entry, convention
    for line in reading.lines:
        convention = read_convention(line)
        if convention is not None and convention.quantity == asked.quantity:
            return None, convention
    return None, None


def _reply(reasoning: str, bullet_ids: list[str], final_answer: str) -> dict[str, Any]:
    return {"reasoning": reasoning, "bullet_ids": bullet_ids, "final_answer": final_answer}
