"""What a content says, word by word, without what carries no meaning: two that agree are the same lesson.

Kept as it is: the order of words, numbers, signs, brackets, negations, code, the case of what is no plain word.
Evened out: articles, emphasis, short forms, punctuation, each word as in
`combee.core.playbook.words`, and a clause that moved from the front ("When X, do Y") to the end ("Do Y when X").
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from combee.core.playbook.words import done, evened, folded, is_plain

_CONTENTS_REMEMBERED = 4_096
_SAME_SIGNS = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "—": " ", "×": "*", "÷": "/"}
    | {"≤": "<=", "≥": ">=", "≠": "!=", "&": " and ", "…": " "}
)
_BOLD = re.compile(r"(?<!\w)\*\*(?=\S)(.+?)(?<=\S)\*\*(?!\w)")
_SHORT_FORMS = (
    (re.compile(r"\bcan't\b", re.IGNORECASE), "can not"),
    (re.compile(r"\bwon't\b", re.IGNORECASE), "will not"),
    (re.compile(r"(?<=\w)n't\b", re.IGNORECASE), " not"),
    (re.compile(r"(?<=[^\W\d_])'s\b"), ""),
)
_LONG_FORMS = {"cannot": ("can", "not"), "never": ("not",), "without": ("not", "with")}
_NUMBER = r"(?:(?<![\w)\]%])[-+])?(?:\d+(?:[.,:]\d+)*|(?<![\w.])\.\d+)(?:[eE][-+]?\d+)?"
_TOKEN = re.compile(
    r"(?P<word>[^\W\d]\w*(?:\.\w+)*)"
    rf"|(?P<number>{_NUMBER})"
    r"|(?P<stop>[.;!?]+(?=[\s\"'`)\]]|$))"
    r"|(?P<pause>[,:]+(?=[\s\"'`)\]]|$))"
    r"|`(?P<code>[^`]+)`"
    r"|(?P<blank>([\"'])[^\w\"']*\7)"  # a quoted separator, or an empty text
    r"|(?P<joint>(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})|(?<=\d)-(?=[^\W\d_]))"
    r"|(?P<sign>[^\s\"'])"
)
_FIGURE = re.compile(_NUMBER)
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NEGATIONS = frozenset({"not", "no", "none", "neither", "nor"})
_ARTICLES = frozenset({"an", "the"})
_EMPHASIS = (
    *(("please",), ("always",), ("you", "should"), ("you", "must")),
    *(("make", "sure", "to"), ("be", "sure", "to"), ("remember", "to")),
)
_DOING_FOLLOWS = frozenset({"after", "before", "when", "while"})
_SUBORDINATE = _DOING_FOLLOWS | {"at", "during", "for", "given", "if", "in", "on", "to", "unless", "with"}

Clause = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """What a content says, in comparable words."""

    words: tuple[str, ...]
    text: str
    """The words as one text."""
    figures: tuple[str, ...]
    """Everything that is not a plain word: it must agree to the letter."""
    subject: str
    """The words without numbers and negations: what it is about."""


@lru_cache(_CONTENTS_REMEMBERED)
def wording(content: str) -> Wording:
    """Return what a content says."""
    text = _plain_text(content.casefold() if content.isupper() else content)
    words = tuple(word for sentence in _sentences(text) for word in _said(sentence))
    words = words or (" ".join(content.split()),)
    figures = tuple(word for word in words if not is_plain(word))
    about = (word for word in words if word not in _NEGATIONS and not _FIGURE.fullmatch(word))
    return Wording(words=words, text=" ".join(words), figures=figures, subject=" ".join(about))


def _plain_text(text: str) -> str:
    text = text.translate(_SAME_SIGNS).replace("()", "").replace("per cent", "percent")
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    if "'" in text:
        for short, full in _SHORT_FORMS:
            text = short.sub(full, text)
    return text


def _sentences(text: str) -> Iterator[list[Clause]]:
    """Yield each sentence as its clauses."""
    clauses: list[Clause] = [[]]
    for found in _TOKEN.finditer(text):
        kind, token = found.lastgroup, found[0]
        if kind == "word":
            word = folded(token)
            clauses[-1].extend(_LONG_FORMS.get(word) or (word,))
        elif kind == "stop":
            yield clauses
            clauses = [[]]
        elif kind == "pause":
            clauses.append([])
        elif kind == "code":
            clauses[-1].append(" ".join(found["code"].split()))
        elif kind == "number" and _THOUSANDS.fullmatch(token):
            clauses[-1].append(token.replace(",", ""))
        elif kind != "joint":
            clauses[-1].append(token)
    yield clauses


def _said(sentence: Iterable[Clause]) -> Iterator[str]:
    first, *rest = (_without_emphasis(clause) for clause in sentence)
    fronted = rest and first and first[0] in _SUBORDINATE
    ordered = [*rest, first] if fronted else [first, *rest]
    return _comparable([word for clause in ordered for word in clause])


def _without_emphasis(clause: Clause) -> Clause:
    if clause[:1] == ["A"]:
        return ["a", *clause[1:]]
    for phrase in _EMPHASIS:
        if tuple(clause[: len(phrase)]) == phrase:
            return _without_emphasis(clause[len(phrase) :])
    return clause


def _comparable(words: list[str]) -> Iterator[str]:
    before, you = "", False
    for word, after in zip(words, [*words[1:], ""], strict=False):
        is_article = word in _ARTICLES or (word == "a" and is_plain(after))
        if is_article or (word in {"do", "does"} and after == "not"):
            continue
        if word == "you" and before in _DOING_FOLLOWS:
            you = True
            continue
        doing = before in _DOING_FOLLOWS and is_plain(word) and (you or word.endswith("ing"))
        yield done(word) if doing else evened(word)
        before, you = word, False
