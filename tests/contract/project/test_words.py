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
