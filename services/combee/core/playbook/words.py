"""One word as others may write it: case, plural, spelling, number words. Strict: another word stays another."""

import re
from functools import lru_cache

_WORDS_REMEMBERED = 8_192
_SHORTEST_SHOUTED = 4
"""Letters; shorter words in capitals may be units or symbols."""
_SHORTEST_PLURAL = 4
_SHORTEST_DOING = 6
_DONE = "~"
_NO_PLURALS = frozenset(
    {"arms", "customs", "earnings", "goods", "means", "news", "proceeds", "returns", "sales", "savings"}
    | {"securities", "works"}
)
"""Their singulars are other words."""
_FIRST_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_NUMBERS = {word: str(number) for number, word in enumerate(_FIRST_NUMBERS)} | {"percent": "%"}
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


def is_plain(word: str) -> bool:
    """Return whether a word is one of ordinary language, not a number, a symbol or code."""
    return word.isalpha() and word.islower() and len(word) > 1


@lru_cache(_WORDS_REMEMBERED)
def folded(word: str) -> str:
    """Return a word in small letters, unless its case may mean something: MW is not mW, M is not m."""
    shouted = word.isupper() and len(word) >= _SHORTEST_SHOUTED
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
    """Return what somebody does, marked: "when rating" is "when you rate", never "when the rate"."""
    verb = evened(word)
    is_doing = verb.endswith("ing") and len(verb) >= _SHORTEST_DOING
    stem = (verb[:-3] if is_doing else verb).removesuffix("e")
    return (stem[:-1] if stem[-2:-1] == stem[-1:] else stem) + _DONE
