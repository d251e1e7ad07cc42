"""Phrases that must be read twice: none is in comments, docstrings, messages or the generated reference."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("services", "schemas", "experiments", "deploy", "docs/reference")
SUFFIXES = {".py", ".toml", ".txt", ".yaml", ".yml", ".json", ".md", ".tpl"}
QUOTATIONS = ("docs/reference/prompts/", "services/combee_sim/family/wordings.py")
"""Lessons as agents word them; "Whoever did not pay …" is one."""
REMEDIES = {
    r"\bSo (?:many|much|long|often)\b(?! as\b)": "name the quantity: 'Maximum number of …', 'Seconds until …'",
    r"\bso (?:many|much) of\b": "name the quantity and what it counts",
    r"\bWhoever\b": "name the subject: a service, a caller, a person",
    r"\bof no use\b": "say 'unusable', 'has no effect' or 'is not needed'",
    r"(?<= )beside (?!each other\b|one another\b)": "say 'next to', 'in addition to' or 'at the same time as'",
    r"\bwhere that is so\b": "say 'if so', or name the condition",
}
PHRASE = re.compile("|".join(REMEDIES))


def words(text: str, *, is_python: bool) -> Iterator[tuple[int, str]]:
    """Yield each line of ``text`` with its number; of Python code only comments and strings."""
    if not is_python:
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] in {"COMMENT", "STRING", "FSTRING_MIDDLE"}:
            yield from enumerate(token.string.splitlines(), token.start[0])


def complaints(text: str, name: str) -> Iterator[str]:
    """Yield place, phrase and remedy of each phrase."""
    if PHRASE.search(text) is None:
        return
    for number, line in words(text, is_python=name.endswith(".py")):
        for pattern, remedy in REMEDIES.items():
            for phrase in re.findall(pattern, line):
                yield f"{name}:{number}: '{phrase.strip()}': {remedy}"


def test_no_text_has_a_phrase_that_must_be_read_twice() -> None:
    """A reader who is in a hurry reads each sentence once."""
    names = (path.relative_to(ROOT).as_posix() for room in ROOMS for path in sorted((ROOT / room).rglob("*")))
    texts = [name for name in names if Path(name).suffix in SUFFIXES and not name.startswith(QUOTATIONS)]

    found = [line for name in texts for line in complaints((ROOT / name).read_text("utf-8"), name)]

    assert len(texts) > 500
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('"""So many tags are told."""\n', "a.py:1: 'So many': name the quantity"),
        ("x = 1  # Whoever asks has it\n", "a.py:1: 'Whoever': name the subject"),
        ('"""One.\n\nIt runs beside the service.\n"""\n', "a.py:3: 'beside': say 'next to'"),
        ('raise E(f"{reply} is of no use")\n', "a.py:1: 'of no use': say 'unusable'"),
    ],
)
def test_a_phrase_is_named_with_its_place_and_a_remedy(text: str, complaint: str) -> None:
    """The message tells where to go and what to write."""
    (found,) = complaints(text, "a.py")

    assert found.startswith(complaint)


def test_code_and_right_english_are_left_alone() -> None:
    """Names of variables are no prose."""
    text = 'for beside in beside_of(line): ...\n"""So long as it runs, they stand beside each other."""\n'

    assert not list(complaints(text, "a.py"))


LOST = re.compile(
    r"\b(?:lessons?|insights?|rewrites?|merges?|model|calls?|combines?|curators?|wordings?|conditions?)\b"
    r"[^.\n]{0,60}?\b(?:lost|loses?|losing)\b",
    re.IGNORECASE,
)
"""A model or its text as the subject of a loss."""
PLACES = (
    *("README.md", "CHANGELOG.md", "docs/guide/*.md", "docs/design/*.md", "docs/reference/*.md"),
    *("services/combee/cli/**/*.py", "services/combee/dashboard/**/*.py", "services/combee/gateway/**/*.py"),
    *("services/combee/sdk/**/*.py", "services/combee/log/reports/*.py", "services/combee_sim/server/*.py"),
)


def losses(text: str) -> list[str]:
    """Return the sentences in which a model, or what it wrote, loses something."""
    return LOST.findall(text)


def test_lost_is_said_of_records_alone_and_omitted_of_what_a_model_left_out() -> None:
    """One word for one thing: a record that was promised and is gone."""
    pages = [path for place in PLACES for path in sorted(ROOT.glob(place))]

    assert len(pages) > 100
    found = {path.name: losses(path.read_text("utf-8")) for path in pages}
    assert {name: texts for name, texts in found.items() if texts} == {}
    assert losses("the combine loses a fifth of the lessons")
    assert not losses("a call is tried again. Nothing is lost")


def test_the_glossary_has_at_most_forty_words_and_each_is_used() -> None:
    """A reader learns them in some minutes."""
    glossary = ROOT / "docs" / "reference" / "glossary.md"
    terms = re.findall(r"\*\*(.+?)\*\*", glossary.read_text("utf-8"))
    others = [path for path in (ROOT / "docs").rglob("*.md") if path != glossary]
    prose = " ".join(" ".join(path.read_text("utf-8") for path in others).lower().split())

    assert 30 <= len(terms) <= 40
    assert [term for term in terms if term not in prose] == []
