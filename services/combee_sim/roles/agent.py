"""The stand-in as agent, right if and only if its playbook or text contains the rule; and as judge of answers."""

from typing import Any

from combee_sim.family import desk
from combee_sim.family.conventions import Convention, read_convention
from combee_sim.family.desk import HouseRule
from combee_sim.family.family import Asked, read_question
from combee_sim.family.insights import needed
from combee_sim.family.knowledge import Knowledge, Row
from combee_sim.family.lessons import ShownEntry, key
from combee_sim.family.wordings import plain
from combee_sim.roles.reading import Reading

_QUESTION_FIELDS = ("question", "task", "prompt", "input")
UNKNOWN = "unknown"
UNKNOWN_TASK = "The simulated agent does not know this kind of task."


def answer(reading: Reading, knowledge: Knowledge) -> dict[str, Any]:
    """Return the agent's reply, computed from the first entry, or line of text, about the requested quantity.

    For a question of other data it knows the required lessons and the answer from the data row; it gives the answer
    if its text contains the lessons.
    """
    question = _question(reading)
    if asked := read_question(question):
        return _computed(reading, asked)
    if rule := desk.asked(question):
        return _by_rule(reading, rule)
    if row := knowledge.behind(question):
        return _recalled(reading, row)
    return _reply(UNKNOWN_TASK, [], UNKNOWN)


def judge(reading: Reading) -> dict[str, Any]:
    """Return the judge's reply: an answer is right if it equals the right one, except for white space and case."""
    fields = {
        name: " ".join(str(text).split()).casefold()
        for part in reading.objects
        for name, text in part.items()
    }
    is_right = fields.get("given_answer", "") == fields.get("right_answer")
    return {"reasoning": "The answers are the same." if is_right else "They differ.", "is_right": is_right}


def _computed(reading: Reading, asked: Asked) -> dict[str, Any]:
    entry, convention = _lesson(reading, asked)
    learned = convention.answer(asked.operands) if convention else None
    if learned is None:
        reason = f"Nothing known about the {asked.quantity}: the plain quotient is given."
        return _reply(reason, [], asked.naive() or UNKNOWN)
    source = f"Entry {entry.id}" if entry else "The text"
    ids = [entry.id] if entry else []
    return _reply(f"{source} says how the {asked.quantity} is reported.", ids, learned)


def _recalled(reading: Reading, row: Row) -> dict[str, Any]:
    """Return the row's answer, with each place whose lesson is present."""
    lessons = [key(lesson) for lesson in needed(row.statement, row.target)]
    if not lessons:
        return _reply(UNKNOWN_TASK, [], UNKNOWN)
    held = {key(line): "" for line in reading.lines}
    held |= {key(entry.content): entry.id for entry in reversed(reading.entries)}
    places = zip(lessons, row.target.split(","), strict=True)
    answers = [right if lesson in held else UNKNOWN for lesson, right in places]
    ids = dict.fromkeys(held[lesson] for lesson in lessons if held.get(lesson))
    known = sum(lesson in held for lesson in lessons)
    return _reply(f"Of {len(lessons)} lessons needed {known} are known.", list(ids), ",".join(answers))


def _by_rule(reading: Reading, rule: HouseRule) -> dict[str, Any]:
    """Return the desk's answer if an entry or line says the rule, else what is usual elsewhere."""
    entries = {desk.rule_in(plain(entry.content)): [entry.id] for entry in reversed(reading.entries)}
    saying = {**{desk.rule_in(plain(line)): [] for line in reading.lines}, **entries}
    if (rule, True) not in saying:
        return _reply(f"Nothing known about {rule.about}: the usual answer is given.", [], rule.usual)
    return _reply(f"The playbook says what holds for {rule.about}.", saying[rule, True], rule.answer)


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
