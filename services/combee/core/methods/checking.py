"""The check call asks which statements say the lessons of a batch, and which conditions a rewrite lost.

The model that merged the lessons is not believed about them. Another, smaller question asks for a quote, which code
looks up in the statement; see `docs/design/coverage.md`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.core.text.forms import comparable, count_words, words_of
from combee.core.text.prompt import FENCE_WARNING, STRING, as_fields, as_items, fence, list_of, object_of
from combee_schemas.model import Prompt

MAX_QUOTE_WORDS = 8
"""Maximum words of a quote that counts; the prompt asks for six, since quotes are a third of a reply."""
MIN_QUOTE_WORDS = 2
"""Minimum words of a quote, unless the statement is shorter: a single word stands in many statements."""

CHECK = f"""You check whether statements say what was learned. You get numbered lessons and numbered statements.
"covered": for each "lesson" the "statement" that says it, by their numbers: an agent who reads that statement alone
does what the lesson asks for, with the lesson's conditions, exceptions and figures. A statement about the same
subject that is less specific, that says something else, or that adds advice which no lesson gives, does not say the
lesson. Leave out the lessons that no statement says. "quote": at most six consecutive words of the statement,
copied, that say it best.
"against": each "lesson" that no statement says and that a "statement" contradicts, so that nobody can follow both;
"quote": at most six words of the statement that do.
Rewrites, if there are any, are entries before and after a change. "lost": by its number, each "rewrite" whose "after"
no longer has a condition, an exception or a negation of "before"; "quote": at most six words of "before" that say
it.
Answer with one JSON object: {{"covered": [{{"lesson": 1, "statement": 2, "quote": "..."}}],
"against": [{{"lesson": 3, "statement": 4, "quote": "..."}}], "lost": [{{"rewrite": 1, "quote": "..."}}]}}
{FENCE_WARNING}"""


_NUMBER = {"type": "integer"}
CHECK_SCHEMA = object_of(
    covered=list_of(object_of(lesson=_NUMBER, statement=_NUMBER, quote=STRING)),
    against=list_of(object_of(lesson=_NUMBER, statement=_NUMBER, quote=STRING)),
    lost=list_of(object_of(rewrite=_NUMBER, quote=STRING)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The text of an entry before and after an UPDATE or MERGE."""

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The usable part of a check call's reply; all numbers are places, from 0."""

    covered: tuple[tuple[int, int], ...] = ()
    """Lesson and the statement that says it, with a quote that the statement has."""
    against: tuple[tuple[int, int], ...] = ()
    """Lesson and the statement that contradicts it, with a quote that the statement has."""
    lost: tuple[tuple[int, str], ...] = ()
    """Rewrite, and the words of ``before`` that its ``after`` no longer says."""


def prompt(lessons: Sequence[str], statements: Sequence[str], rewrites: Sequence[Rewrite] = ()) -> Prompt:
    """Ask which statement says each lesson, and what the rewrites lost; texts are numbered from 1."""
    parts = [
        fence("lessons", _numbered(lessons)),
        fence("statements", _numbered(statements)),
    ]
    if rewrites:
        pairs = ({"before": rewrite.before, "after": rewrite.after} for rewrite in rewrites)
        parts.append(fence("rewrites", as_items(pairs)))
    return Prompt(
        system=CHECK,
        user="\n".join(parts),
        reply_name="check",
        reply_schema=CHECK_SCHEMA,
        optional=frozenset({"against", "lost"}),
    )


def _numbered(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts as ``1: text``, ``2: text`` and so on: hundreds of shorter lines save 5 % of a check call."""
    return as_fields({str(number): text for number, text in enumerate(texts, 1)})


def read(
    body: Mapping[str, Any],
    lessons: Sequence[str],
    statements: Sequence[str],
    rewrites: Sequence[Rewrite] = (),
) -> Checked:
    """Return the answers whose quote is in the quoted text; figures are the caller's to compare."""
    covered, against = (
        dict.fromkeys(
            (lesson, statement)
            for lesson, statement, quote in _answers(body.get(name), "lesson", "statement")
            if lesson < len(lessons)
            and statement < len(statements)
            and has_quote(statements[statement], quote)
        )
        for name in ("covered", "against")
    )
    lost = (
        (rewrite, quote)
        for rewrite, _, quote in _answers(body.get("lost"), "rewrite", "rewrite")
        if rewrite < len(rewrites) and has_quote(rewrites[rewrite].before, quote)
    )
    return Checked(covered=tuple(covered), against=tuple(against), lost=tuple(dict.fromkeys(lost)))


def has_quote(text: str, quote: str) -> bool:
    """Return whether a text has these consecutive words: at most `MAX_QUOTE_WORDS`, and more than one."""
    words, quoted = words_of(comparable(text)), words_of(comparable(quote))
    if not min(MIN_QUOTE_WORDS, count_words(words)) <= count_words(quoted) <= MAX_QUOTE_WORDS:
        return False
    return any(words[at : at + len(quoted)] == quoted for at in range(len(words) - len(quoted) + 1))


def _answers(value: object, first: str, second: str) -> Iterator[tuple[int, int, str]]:
    """Yield the places, from 0, and the quote of each well-formed answer."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            numbers = item.get(first), item.get(second)
            if all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in numbers):
                yield int(str(numbers[0])) - 1, int(str(numbers[1])) - 1, str(item.get("quote") or "")
