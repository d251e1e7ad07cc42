"""The stand-in as checker: whether a statement is a lesson, in any wording, and what a rewrite lost."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from combee_schemas.digests import digest
from combee_sim.family.blurring import lost_in
from combee_sim.family.lessons import subject, text_of
from combee_sim.family.wordings import plain
from combee_sim.modes import NO_MODES, Modes
from combee_sim.roles.failing import Failing
from combee_sim.roles.reading import Reading

MAX_QUOTE_WORDS, MIN_QUOTE_WORDS = 6, 2
_WORD = re.compile(r"\w+")

Texts = Sequence[tuple[int, str]]
"""Texts with their numbers."""


def check(reading: Reading, seed: int, modes: Modes = NO_MODES) -> dict[str, Any]:
    """Return which statement says each lesson, and the rewrites that lost a condition or a negation, with quotes.

    The law does not apply: a check compares texts, and its reply holds none. Equal texts in one call have the same
    judgement.
    """
    lessons = [(n, text) for n, text, _ in _having(reading, "lesson")]
    statements = [(n, text) for n, text, _ in _having(reading, "statement")]
    failing = Failing(modes, (seed, digest(*(text for _, text in statements)).hex()))
    pairs = [(n, before, str(value["after"])) for n, before, value in _having(reading, "before", "after")]
    covered = list(_covered(lessons, statements, failing))
    left = [one for one in lessons if one[0] not in {answer["lesson"] for answer in covered}]
    is_asked = reading.says('"against": each "lesson"')
    return {
        "covered": covered,
        "against": list(_against(left, statements, failing)) if is_asked else [],
        "lost": list(_lost(pairs, failing)),
    }


def _having(reading: Reading, *names: str) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Yield the number, the first text and all fields of each item with these fields."""
    having = (value for value in reading.objects if all(isinstance(value.get(name), str) for name in names))
    for place, value in enumerate(having, 1):
        yield value.get("n", place), value[names[0]], value


def _covered(lessons: Texts, statements: Texts, failing: Failing) -> Iterator[dict[str, Any]]:
    by_lesson = {_whole(text): (n, text) for n, text in reversed(statements)}
    for n, lesson in lessons:
        saying = by_lesson.get(_whole(lesson))
        if failing.misjudges("lesson", lesson, is_well=bool(saying)):
            saying = None if saying or not statements else _nearest(lesson, statements)
        if saying:
            yield {"lesson": n, "statement": saying[0], "quote": quote(saying[1])}


def _against(lessons: Texts, statements: Texts, failing: Failing) -> Iterator[dict[str, Any]]:
    by_subject = {subject(text): (n, text) for n, text in reversed(statements) if subject(text)}
    for n, lesson in lessons:
        other = by_subject.get(subject(lesson))
        if failing.misjudges("against", lesson, is_well=bool(other)):
            other = None if other or not statements else _nearest(lesson, statements)
        if other:
            yield {"lesson": n, "statement": other[0], "quote": quote(other[1])}


def _whole(text: str) -> str:
    """Return what a text says as a whole, in any wording: with further advice it says something else."""
    return text_of(plain(text))


def _nearest(lesson: str, statements: Texts) -> tuple[int, str]:
    """Return the statement with most words of a lesson, as who errs would name it."""
    words = set(text_of(lesson).split())
    return max(statements, key=lambda statement: len(words.intersection(text_of(statement[1]).split())))


def _lost(pairs: Sequence[tuple[int, str, str]], failing: Failing) -> Iterator[dict[str, Any]]:
    for n, before, after in pairs:
        lost = lost_in(before, after)
        if failing.misjudges("rewrite", before, after, is_well=not lost):
            words = [match.group() for match in _WORD.finditer(before)]
            lost = "" if lost or not words else failing.one_of(words, "words", before, after)
        if lost:
            yield {"rewrite": n, "quote": quote(before, max(0, before.find(lost)), len(lost))}


def quote(text: str, start: int = 0, length: int | None = None) -> str:
    """Return consecutive words of a text: those of a part of it, at least two if it has them and at most six."""
    spans = [match.span() for match in _WORD.finditer(text)]
    end = len(text) if length is None else start + length
    if not spans:
        return ""
    inside = [place for place, span in enumerate(spans) if span[1] > start and span[0] < end]
    first = min(inside[0], max(0, len(spans) - MIN_QUOTE_WORDS))
    last = min(max(inside[-1], first + MIN_QUOTE_WORDS - 1), first + MAX_QUOTE_WORDS - 1, len(spans) - 1)
    return text[spans[first][0] : spans[last][1]]
