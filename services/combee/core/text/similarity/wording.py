"""What a content says word for word (``said``), and its wording without small differences (``wording``).

Who says a lesson supports it in its own words alone. The wording tells what bars a rejected text, and what may
contradict an entry: there the wider comparison is the safer one.

Kept: the order of words ("with a voucher, refund orders paid" is not "refund orders paid with a voucher"), numbers,
signs, brackets, negations, code, addresses, the case of words that are not plain, ends of sentences, question marks
and colons. Normalised: articles, emphasis, short forms, commas, and the endings of words (``evened``).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from combee.core.text.forms import COMBINING, SHORT, comparable

_CONTENTS_REMEMBERED = 8_192
_LONG_REMEMBERED = 256
"""Of texts longer than most entries, each of which takes up to 100 KB: enough for the calls of a batch."""
_ONE_SIGN = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "×": "*", "÷": "/"}
    | {"≤": "<=", "≥": ">=", "≠": "!="}
)
"""Ways to write one sign."""
SAME_SIGNS = _ONE_SIGN | str.maketrans({"—": " , ", "&": " and ", "…": " , "})
_AROUND = ".,:;!?()\"'"
"""Signs before and after a word of a sentence."""
_BOLD = re.compile(r"(?<!\w)\*\*(?=\S)(.{1,200}?)(?<=\S)\*\*(?!\w)")
_SHORT_FORMS = (
    (re.compile(r"\bcan't\b", re.IGNORECASE), "can not"),
    (re.compile(r"\bwon't\b", re.IGNORECASE), "will not"),
    (re.compile(r"(?<=\w)n't\b", re.IGNORECASE), " not"),
)
_LONG_FORMS = {"cannot": ("can", "not"), "never": ("not",), "without": ("not", "with")}
NUMBER = r"(?:(?<![\w)\]%])[-+])?(?:\d+(?:[.,:]\d+)*|(?<![\w.])\.\d+)(?:[eE][-+]?\d+)?"
_PATH = r"/[^\s\"'`()<>\[\],;]*[\w/]"
_TOKEN = re.compile(
    # A URL, an address of mail or a handle, a host or a file, a path: "the-shop.com" is not "shop.com".
    rf"(?<![\w@.+-])(?P<name>[^\W\d][\w+.-]*:/{_PATH}|[\w.+-]*@[\w./-]*\w"
    rf"|[^\W\d]\w*(?:-\w+)*(?:\.\w(?:[\w-]*\w)?)+(?::\d+)?(?:{_PATH})?"
    # "rm -rf ./tmp" is neither "rm -rf ../tmp" nor "rm -rf / tmp".
    rf"|~?(?:/[\w.-]*\w){{2,}}|(?<![^\s(\[\"'])(?:~|\.{{1,2}})?(?:/[\w.*-]*[\w*])+)"
    rf"|(?P<word>[^\W\d][\w{COMBINING}]*(?:\.[\w{COMBINING}]+)*)"
    rf"|(?P<number>{NUMBER})"
    r"|(?P<stop>(?<![.;!?])[.;!?]+(?=[\s\"'`)\]]|$))"
    r"|(?P<pause>(?<![,:])[,:]+(?=[\s\"'`)\]]|$))"
    r"|`(?P<code>[^`]+)`"
    r"|(?P<blank>(?P<quote>[\"'])[^\w\"']*(?P=quote))"  # a quoted separator, or an empty text
    r"|(?P<joint>(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})|(?<=\d)-(?=[^\W\d_]))"
    r"|(?P<sign>[^\s\"'])"
)
_FIGURE = re.compile(NUMBER)
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
NEGATIONS = frozenset({"not", "no", "none", "neither", "nor"})
_ARTICLES = frozenset({"an", "the"})
_TURNED_BY_A = frozenset({"few", "little"})
"""Words that say the contrary with an article before them."""
_EMPHASIS = (
    *(("please",), ("always",), ("you", "should"), ("you", "must")),
    *(("make", "sure", "to"), ("be", "sure", "to"), ("remember", "to")),
)
_EMPHATIC = frozenset(phrase[0] for phrase in _EMPHASIS)
_DOING_FOLLOWS = frozenset({"after", "before", "when", "while"})
MARKS = frozenset({".", "?", ":"})
"""The words that stand for punctuation."""

Clause = list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A content in comparable words."""

    words: tuple[str, ...]
    subject: str
    """The words without numbers and negations, i.e. the topic."""


def wording(content: str) -> Wording:
    """Return the wording of a content."""
    return of_short(content) if len(content) <= SHORT else of_long(content)


def read_wording(content: str) -> Wording:
    """Return the same, and remember nothing: a whole reflection is as large as a thousand entries."""
    text = _plain_text(content.casefold() if content.isupper() else content)
    tokens = list(chain.from_iterable(map(_words_of, _sentences(text))))
    while tokens[-1:] == ["."]:
        tokens.pop()
    words = tuple(tokens) or (comparable(content, cased=True),)
    about = (word for word in words if not (word in NEGATIONS or _is_number(word)))
    return Wording(words=words, subject=" ".join(about))


of_short, of_long = lru_cache(_CONTENTS_REMEMBERED)(read_wording), lru_cache(_LONG_REMEMBERED)(read_wording)


def said(content: str) -> str:
    """Return what a content says: the same lesson has the same words and signs.

    The case of ordinary words, spaces, and a last full stop count for nothing.
    """
    return _said_by_short(content) if len(content) <= SHORT else _read_said(content)


def _read_said(content: str) -> str:
    text = comparable(content.translate(_ONE_SIGN), cased=True).rstrip(" .!")
    first, *more = text.split() or [""]
    # In capitals "git branch -D" is still not "git branch -d".
    fold = _lowered if content.isupper() else folded
    return " ".join(map(fold, ("a" if first == "A" else first, *more)))


def _lowered(word: str) -> str:
    return word.casefold() if word.strip(_AROUND).isalpha() else word


_said_by_short = lru_cache(_CONTENTS_REMEMBERED)(_read_said)


def _plain_text(text: str) -> str:
    text = comparable(text.translate(SAME_SIGNS), cased=True).replace("()", "").replace("per cent", "percent")
    if "**" in text:
        text = _BOLD.sub(r"\1", text)
    if "'" in text:
        for short, full in _SHORT_FORMS:
            text = short.sub(full, text)
    return text


def _sentences(text: str) -> Iterator[list[Clause]]:
    """Yield each sentence as its clauses."""
    clause: Clause = []
    clauses = [clause]
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "word":
            word = folded(token)
            if word in _LONG_FORMS:
                clause.extend(_LONG_FORMS[word])
            else:
                clause.append(word)
        elif kind == "stop":
            clause.append("?" if "?" in token else ".")
            yield clauses
            clause = []
            clauses = [clause]
        elif kind == "pause":
            # "No, refunds are paid" is the contrary of "No refunds are paid".
            clause.extend(":" if ":" in token else "," if NEGATIONS.intersection(clause[-1:]) else "")
            clause = []
            clauses.append(clause)
        elif kind == "code":
            clause.append(" ".join(match["code"].split()))
        elif kind == "number" and "," in token and THOUSANDS.fullmatch(token):
            clause.append(token.replace(",", ""))
        elif kind != "joint":
            clause.append(token)
    yield clauses


def _words_of(sentence: Iterable[Clause]) -> list[str]:
    return _comparable(list(chain.from_iterable(map(_without_emphasis, sentence))))


def _without_emphasis(clause: Clause) -> Clause:
    at = 0
    while at < len(clause) and clause[at] in _EMPHATIC:
        said = next((len(one) for one in _EMPHASIS if tuple(clause[at : at + len(one)]) == one), 0)
        if not said:
            break
        at += said
    left = clause[at:] if at else clause
    return ["a", *left[1:]] if left[:1] == ["A"] else left


def _comparable(words: list[str]) -> list[str]:
    comparable: list[str] = []
    before, you = "", False
    for word, after in zip(words, [*words[1:], ""], strict=False):
        is_article = (word in _ARTICLES or (word == "a" and is_plain(after))) and after not in _TURNED_BY_A
        if is_article or (word in {"do", "does"} and after == "not"):
            continue
        if word == "you" and before in _DOING_FOLLOWS:
            you = True
            continue
        doing = before in _DOING_FOLLOWS and is_plain(word) and (you or word.endswith("ing"))
        comparable.append(done(word) if doing else evened(word))
        before, you = word, False
    return comparable


_WORDS_REMEMBERED = 8_192
_SHORTEST_SHOUTED = 4
"""Minimum letters of a plain word in capitals; shorter ones may be units or symbols."""
_SHORTEST_PLURAL = 4
_SHORTEST_DOING = 6
_DONE = "~"
_NO_PLURALS = frozenset(
    {"arms", "customs", "earnings", "futures", "goods", "means", "news", "proceeds", "returns", "sales"}
    | {"savings", "securities", "works"}
    | {"amqps", "ftps", "https", "imaps", "ldaps", "mqtts", "smtps"}
)
"""Words ending in s that without it are other words: "https" is not "http"."""
FIRST_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_NUMBERS = {word: str(number) for number, word in enumerate(FIRST_NUMBERS)} | {"percent": "%"}
_SPELLINGS = tuple(
    (re.compile(british), american)
    for british, american in (
        (r"^(\w{3,}[iy])s(e[ds]?|ing|ations?)$", r"\1z\2"),
        (r"^(behavi|col|fav|flav|hon|lab|neighb|rum|vap)our", r"\1or"),
        (r"^(calib|cent|fib|lit|theat)re(s?)$", r"\1er\2"),
        (r"^(ana|cata|dia)logue(s?)$", r"\1log\2"),
        (r"^(cancel|label|model|signal|travel)l(ed|ing|er)", r"\1\2"),
        (r"^(def|lic|off)ence(s?)$", r"\1ense\2"),
    )
)


@lru_cache(_WORDS_REMEMBERED)
def is_plain(word: str) -> bool:
    """Return whether a word is of ordinary language, and not a number, a symbol or code."""
    return word.isalpha() and word.islower() and len(word) > 1


@lru_cache(_WORDS_REMEMBERED)
def _is_number(word: str) -> bool:
    return _FIGURE.fullmatch(word) is not None


@lru_cache(_WORDS_REMEMBERED)
def folded(word: str) -> str:
    """Return a word in lower case, unless its case may be significant: MW is not mW, M is not m."""
    shouted = word.isupper() and (len(word) >= _SHORTEST_SHOUTED or word == "NOT")
    is_name = word.istitle() and len(word) > 1
    return word.casefold() if word.isalpha() and (shouted or is_name) else word


@lru_cache(_WORDS_REMEMBERED)
def evened(word: str) -> str:
    """Return a plain word in the singular and in American spelling, a number word as its number."""
    if not is_plain(word):
        return word
    for british, american in _SPELLINGS:
        word = british.sub(american, word)
    return _NUMBERS.get(word) or _singular(word)


def _singular(word: str) -> str:
    no_plural = word.endswith(("ss", "us", "is")) or word in _NO_PLURALS
    if len(word) < _SHORTEST_PLURAL or not word.endswith("s") or no_plural:
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("sses", "shes", "ches", "xes")) else word[:-1]


def done(word: str) -> str:
    """Return a verb form, marked: "when rating" is "when you rate", never "when the rate"."""
    verb = evened(word)
    is_doing = verb.endswith("ing") and len(verb) >= _SHORTEST_DOING
    stem = (verb[:-3] if is_doing else verb).removesuffix("e")
    return (stem[:-1] if stem[-2:-1] == stem[-1:] else stem) + _DONE
