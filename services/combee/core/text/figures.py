"""Quantities of a text, each with its unit in one notation; pure.

"14 days", "two weeks" and "a 14-day limit" have the same figure, and so have "80 €" and "EUR 80". A unit of measure
has one name and one scale. Any other figure is counted by the noun after it ("3 retries") or names a thing by the
word before it ("step 3", "HTTP 429").
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from combee.core.text.forms import SHORT, comparable
from combee.core.text.similarity.wording import (
    FIRST_NUMBERS,
    NEGATIONS,
    NUMBER,
    SAME_SIGNS,
    THOUSANDS,
    evened,
    folded,
    wording,
)
from combee_schemas.digests import digest

_TOKEN = re.compile(rf"(?P<word>[^\W\d]\w*(?:(?<=\d)\.\d+)*)|(?P<number>{NUMBER})|(?P<sign>\S)")
_LIST_NUMBER = re.compile(r"(?:^|(?<=\n)|(?<=[.!?;:]\s))\d{1,3}[.)](?=\s)")
_CLOCK = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)(?::[0-5]\d)?")
_DECIMAL = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)?|\.\d+)")
_EXACT = Context(prec=64)
MAX_DIGITS = 24
"""Longer numbers, and those with an exponent, are compared as texts."""
MAX_FIGURES = 200
"""Maximum figures of a text; one with more has a single figure, the whole text. A lesson has room for thousands, and
a batch has room for a thousand such lessons."""
_LONG_REMEMBERED = 2_048
"""Cache size: the largest batch's lessons, each of which is compared with many statements."""

CLOCK, PER, PERCENT, NAME = "o'clock", "per", "%", "name"
_SCALES: Mapping[str, tuple[str, Fraction]] = {
    name: (dimension, Fraction(scale))
    for dimension, scale, names in (
        ("second", 1, "second seconds sec secs s"),
        ("second", 60, "minute minutes min mins"),
        ("second", 3_600, "hour hours hr hrs h"),
        ("second", 86_400, "day days d"),
        ("second", 604_800, "week weeks wk wks"),
        ("second", 1_209_600, "fortnight fortnights"),
        ("second", "0.001", "millisecond milliseconds ms"),
        ("month", 1, "month months mo"),
        ("month", 3, "quarter quarters"),
        ("month", 12, "year years yr yrs"),
        (PERCENT, 1, "% percent pct"),
        ("degree", 1, "° degree degrees"),
        ("EUR", 1, "€ eur euro euros"),
        ("USD", 1, "$ usd dollar dollars bucks"),
        ("GBP", 1, "£ gbp pound pounds"),
        ("JPY", 1, "¥ jpy yen"),
        ("CHF", 1, "chf franc francs"),
        ("INR", 1, "₹ inr rupee rupees"),
        ("cent", 1, "cent cents"),
        ("gram", 1, "g gram grams"),
        ("gram", 1_000, "kg kgs kilo kilos kilogram kilograms"),
        ("metre", 1, "metre metres meter meters"),
        ("metre", 1_000, "km kms kilometre kilometres kilometer kilometers"),
        ("centimetre", 1, "cm centimetre centimetres centimeter centimeters"),
        ("mile", 1, "mile miles"),
        ("litre", 1, "l litre litres liter liters"),
        ("KB", 1, "kb kilobyte kilobytes"),
        ("KB", 1_000, "mb megabyte megabytes"),
        ("KB", 1_000_000, "gb gigabyte gigabytes"),
    )
    for name in names.split()
}
_DURATIONS = frozenset({"second", "month", "business minute", "business hour", "business day"})
MEASURED = frozenset(dimension for dimension, _ in _SCALES.values()) | _DURATIONS | {CLOCK, PER}
"""Units of measure; all other units are nouns, for which a text may use another noun."""
_TIMES_SHOWN = tuple((name, _SCALES[name][1]) for name in ("day", "hour", "minute", "second"))
_CURRENCIES = frozenset({"EUR", "USD", "GBP", "JPY", "CHF", "INR"})
_CASED = frozenset({"Mb", "Gb", "Kb", "S", "H", "D", "G", "L"})
"""Symbols that are units of measure only in another case."""
_TIMES = frozenset({"second", "month"})
_ADVERBS = {
    "hourly": "hour",
    "daily": "day",
    "weekly": "week",
    "monthly": "month",
    "yearly": "year",
    "annually": "year",
}
_TENS = ("thir", "four", "fif", "six", "seven", "eigh", "nine")
_MULTIPLES = {"hundred": 100, "thousand": 1_000, "k": 1_000, "million": 10**6, "billion": 10**9, "dozen": 12}
_NUMBERS = {
    **{word: number for number, word in enumerate(FIRST_NUMBERS)},
    **{f"{word}teen": number for number, word in enumerate(_TENS, 13)},
    **{f"{word}ty": number for number, word in zip(range(30, 100, 10), _TENS, strict=True)},
    "twenty": 20,
    "forty": 40,
    **{word: number for word, number in _MULTIPLES.items() if word != "k"},
}
_PARTS = ("half", "third", "quarter", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_FRACTIONS = {f"{word}{ending}": number for number, word in enumerate(_PARTS, 2) for ending in ("", "s")}
_HALVES = frozenset({"half", "halve", "halved"})
_DAY_PARTS = {"noon": 12, "midday": 12, "midnight": 0}
_CLOCKS = frozenset({"am", "pm", "oclock"})
_WORKING_WEEK = 5
_OFTEN = {"once": 1, "twice": 2, "thrice": 3}
_ORDINAL_WORDS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ORDINALS = {word: number for number, word in enumerate(_ORDINAL_WORDS.split(), 1)}
_ORDINAL_ENDINGS = frozenset({"st", "nd", "rd", "th"})
_TEN = 10
_NAMED_WORDS = (
    "appendix article chapter clause code error figure form http item level line option page paragraph phase port"
    " priority release row rule section stage status step table tier type version"
)
_NAMED = frozenset(_NAMED_WORDS.split())
"""Nouns that a number after them names."""
_VERSIONS = frozenset({"v", "release", "version"})
_FILLER_WORDS = (
    "additional calendar consecutive different extra full further more of other separate successive whole"
)
_BUSINESS = frozenset({"business", "working"})
_FILLERS = frozenset(_FILLER_WORDS.split()) | _BUSINESS
"""Words that may stand between a number and its unit."""
_BETWEEN = frozenset({"to", "and", "or", "-", "/", "until", "through", "versus", "vs", "not", "than", ","})
_DETERMINERS = frozenset(
    ["a", "an", "any", "each", "every", "her", "his", "its", "my", "our", "the", "their", "this", "your"]
)
_OTHER_GRAMMAR = (
    "about above after ago all and are as at be because before below but by can do earlier early else for from has"
    " have how if in instead into is it late later may minus more must no not of off on once only or other out over"
    " own per plus rather shall should since so such than that them then there these they those though through times"
    " to under unless until up upon was we were what when where whether which while who will with within without"
    " would you"
)
_ARTICLES = frozenset({"a", "an"})
_NO_NOUN = _DETERMINERS | frozenset(_OTHER_GRAMMAR.split())
"""Words that do not say what a figure counts."""
_BEFORE_TIME_WORDS = (
    "about after another approximately around every exceed exceeds exceeding for in least most over than under"
    " until within"
)
_BEFORE_A_TIME = frozenset(_BEFORE_TIME_WORDS.split())
_AFTER_A_TIME = frozenset({"after", "ago", "ahead", "before", "earlier", "later", "prior"})
_NO_COUNT = frozenset({"any", "each", "every", "no", "some", "that", "the", "this", "which"})
"""Words before "one" where it is no number."""
_NO_RANK = _NO_NOUN | _NUMBERS.keys() | {"place", "thing"}
"""Words after "first" where it is no number."""
QUALIFIERS = NEGATIONS | frozenset({"avoid", "except", "if", "only", "unless", "until", "with"})
"""Words of negations, conditions and exceptions, as ``wording`` writes them."""


@dataclass(frozen=True, slots=True, order=True)
class Figure:
    """A quantity: its value in plain decimal notation, and its unit."""

    value: str
    unit: str

    @property
    def is_measured(self) -> bool:
        """Whether the unit is one of measure, which no text calls by another noun."""
        return self.unit in MEASURED

    @property
    def is_time(self) -> bool:
        """Whether it is a time; a month has no fixed number of days."""
        return self.unit in _DURATIONS

    def __str__(self) -> str:
        if self.unit == "second" and len(self.value) <= MAX_DIGITS and _DECIMAL.fullmatch(self.value):
            return next(
                f"{_plain(value, Fraction(1))} {name if value == 1 else name + 's'}"
                for name, scale in _TIMES_SHOWN
                if (value := Fraction(self.value) / scale) % 1 == 0 or name == "second"
            )
        return f"{self.value} {self.unit}".strip()


class _Token(NamedTuple):
    text: str
    kind: str | None
    joined: bool
    """Whether no space stands before it."""


_END = _Token("", "end", joined=False)


class _Number(NamedTuple):
    """A number at the tokens ``start`` to ``end``, and how it is written."""

    value: Fraction | str
    start: int
    end: int
    kind: str = ""
    """The unit, if the number itself says it."""


class _Unit(NamedTuple):
    """The unit of a number, in its own scale, and the token after it."""

    name: str
    scale: Fraction
    end: int


_NO_UNIT = _Unit("", Fraction(1), 0)


def figures(text: str) -> tuple[Figure, ...]:
    """Return the figures of a text, each once, in its order."""
    return _figures(text) if len(text) <= SHORT else _figures_of_long(text)


def conflicting(text: str, other: str) -> bool:
    """Return whether two texts have figures of one unit of which neither has all of the other's."""
    own, others = by_unit(figures(text)), by_unit(figures(other))
    return any(not (own[unit] <= others[unit] or others[unit] <= own[unit]) for unit in own.keys() & others)


def lacking(text: str, lesson: str) -> tuple[Figure, ...]:
    """Return the figures of a lesson that a text does not have.

    A figure that counts or names something may do so by another noun, one that the lesson has no figure of; and one
    of something need not be counted, where nothing else is.
    """
    own = by_unit(figures(text))
    wanted = figures(lesson)
    units = {figure.unit for figure in wanted}
    renamed = frozenset().union(*(own[unit] for unit in own.keys() - units - MEASURED))

    def is_said(figure: Figure) -> bool:
        if figure.is_measured or figure.unit in own:
            return figure.value in own.get(figure.unit, ())
        return figure.value in renamed or (figure.value == "1" and not renamed)

    return tuple(figure for figure in wanted if not is_said(figure))


def loses_a_figure(content: str, said: str) -> bool:
    """Return whether a content lacks a figure of a text and has no new one of its unit in its place."""
    new = {figure.unit for figure in set(figures(content)).difference(figures(said))}
    return any(figure.unit not in new for figure in lacking(content, said))


@lru_cache(8_192)
def by_unit(quantities: tuple[Figure, ...]) -> Mapping[str, frozenset[str]]:
    """Return the values of each unit."""
    values: dict[str, set[str]] = defaultdict(set)
    for figure in quantities:
        values[figure.unit].add(figure.value)
    return {unit: frozenset(own) for unit, own in values.items()}


def qualifiers(text: str) -> tuple[str, ...]:
    """Return the words of negations, conditions and exceptions of a text, sorted, each as often as it is there."""
    return tuple(sorted(word for word in wording(text).words if word in QUALIFIERS))


@lru_cache(_LONG_REMEMBERED)
def _figures_of_long(text: str) -> tuple[Figure, ...]:
    return _figures.__wrapped__(text)


@lru_cache(8_192)
def _figures(text: str) -> tuple[Figure, ...]:
    tokens = _tokens(text)
    numbers = list(islice(_numbers(tokens), MAX_FIGURES + 1))
    names = list(islice(_names(tokens), MAX_FIGURES + 1))
    if len(numbers) + len(names) > MAX_FIGURES:
        return (Figure(digest("figures", *(token.text for token in tokens)).hex(), "figures"),)
    starts = {number.start: number for number in numbers}
    units: dict[int, _Unit] = {}
    for number in reversed(numbers):
        units[number.start] = _unit(tokens, number, starts, units)
    quantities: list[Figure] = []
    before = _NO_UNIT
    for number in numbers:
        unit = units[number.start]
        if not unit.name and before.name and _is_range(tokens, before.end, number.start):
            unit = before._replace(end=unit.end)
        quantities.append(Figure(_plain(number.value, unit.scale), unit.name))
        if rate := _rate(tokens, unit.end):
            quantities.append(rate)
        before = unit
    return tuple(dict.fromkeys((*quantities, *names)))


def _tokens(text: str) -> Sequence[_Token]:
    text = comparable(_LIST_NUMBER.sub(" ; ", text).translate(SAME_SIGNS), cased=True)
    text = (
        text.replace("per cent", "percent").replace("o'clock", "oclock").replace("**", " ").replace("`", " ")
    )
    tokens: list[_Token] = []
    end = -1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        word = match[0]
        if kind == "word":
            word = folded(word) if word.isalpha() else word
        tokens.append(_Token(word, kind, joined=match.start() == end))
        end = match.end()
    return tokens


def _at(tokens: Sequence[_Token], place: int) -> _Token:
    return tokens[place] if 0 <= place < len(tokens) else _END


def _numbers(tokens: Sequence[_Token]) -> Iterable[_Number]:
    at = 0
    while at < len(tokens):
        number = _number(tokens, at)
        if number is not None:
            yield number
        at = at + 1 if number is None else number.end


def _number(tokens: Sequence[_Token], at: int) -> _Number | None:
    token = tokens[at]
    if token.kind == "number":
        return _digits(tokens, at)
    if token.kind != "word":
        return None
    word = token.text.casefold()
    if word in _HALVES or _at(tokens, at + 2).text == "of":
        fraction = _fraction(tokens, at)
        if fraction is not None:
            return fraction
    if word in _NUMBERS:
        return _words(tokens, at) if word != "one" or _is_count(tokens, at) else None
    if word in _DAY_PARTS:
        return _Number(f"{_DAY_PARTS[word]}:00", at, at + 1, CLOCK)
    if word in _OFTEN and _is_often(tokens, at):
        return _Number(Fraction(_OFTEN[word]), at, at + 1, "time")
    value = _rank(tokens, at)
    return None if value is None else _Number(Fraction(value), at, at + 1)


def _rank(tokens: Sequence[_Token], at: int) -> int | None:
    """Return the number that a word is before its noun: the third attempt, a single retry, within a week."""
    before, word, after = (_at(tokens, place).text.casefold() for place in (at - 1, at, at + 1))
    is_noun = _is_noun(_at(tokens, at + 1))
    if word in _ORDINALS and before in _DETERMINERS and is_noun and after not in _NO_RANK:
        return _ORDINALS[word]
    return 1 if (word == "single" and is_noun) or (word in _ARTICLES and _is_one_time(tokens, at)) else None


def _is_noun(token: _Token) -> bool:
    return token.kind == "word" and token.text.casefold() not in _NO_NOUN


def _is_count(tokens: Sequence[_Token], at: int) -> bool:
    """Return whether "one" is a number, and no pronoun."""
    after = _at(tokens, at + 1)
    if after.text == "-":
        return bool(_measure(_at(tokens, at + 2).text)[0])
    return _is_noun(after) and _at(tokens, at - 1).text.casefold() not in _NO_COUNT


def _fraction(tokens: Sequence[_Token], at: int) -> _Number | None:
    """Return a part of a time ("half an hour", "a quarter of an hour") or of anything else, which is in percent."""
    word, place = tokens[at].text.casefold(), at + 1
    if word in _HALVES:
        count, parts = 1, 2
        if _at(tokens, place).text in {"-", "of"}:
            place += 1
    else:
        count = 1 if word in _ARTICLES else _NUMBERS.get(word, 0)
        parts = _FRACTIONS.get(_at(tokens, place).text.casefold(), 0)
        place += 2
    if not count or not parts:
        return None
    of_time = place + (_at(tokens, place).text in _ARTICLES)
    while _at(tokens, of_time).text.casefold() in _BUSINESS:
        of_time += 1
    if _measure(_at(tokens, of_time).text)[0] in _TIMES:
        place += _at(tokens, place).text in _ARTICLES
        return _Number(Fraction(count, parts), at, place)
    if _at(tokens, place).text == "a" and _at(tokens, place + 1).text == "dozen":
        return _Number(Fraction(12 * count, parts), at, place + 2)
    end = at + 1 if word in _HALVES else place
    return _Number(Fraction(100 * count, parts), at, end, PERCENT)


def _is_one_time(tokens: Sequence[_Token], at: int) -> bool:
    """Return whether an article stands before a time that is one: within a week, a week later."""
    if _measure(_at(tokens, at + 1).text)[0] not in _TIMES:
        return False
    before, beyond = (_at(tokens, place).text.casefold() for place in (at - 1, at + 2))
    return before in _BEFORE_A_TIME or beyond in _AFTER_A_TIME


def _is_often(tokens: Sequence[_Token], at: int) -> bool:
    """Return whether "once" is a number, and neither a conjunction nor "at once"."""
    if tokens[at].text.casefold() != "once":
        return True
    after = _at(tokens, at + 1)
    ends = after.kind != "word" or after.text.casefold() in {
        *_ARTICLES,
        *_ADVERBS,
        "every",
        "more",
        "only",
        "per",
    }
    return ends and _at(tokens, at - 1).text != "at"


def _digits(tokens: Sequence[_Token], at: int) -> _Number:
    text = tokens[at].text
    after = _at(tokens, at + 1)
    if clock := _CLOCK.fullmatch(text):
        return _clock(tokens, at, int(clock[1]), int(clock[2]))
    if after.text.casefold() in _CLOCKS and text.isdecimal() and len(text) <= len("12"):
        return _clock(tokens, at, int(text))
    if THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if not _DECIMAL.fullmatch(text) or len(text) > MAX_DIGITS:
        return _Number(text, at, at + 1)
    value = Fraction(text.replace(",", "."))
    return _multiplied(tokens, -value if _is_negative(tokens, at) else value, at, at + 1)


def _clock(tokens: Sequence[_Token], at: int, hour: int, minute: int = 0) -> _Number:
    after = _at(tokens, at + 1).text.casefold()
    if after in {"am", "pm"}:
        hour = hour % 12 + 12 * (after == "pm")
    return _Number(f"{hour}:{minute:02}", at, at + 1 + (after in _CLOCKS), CLOCK)


def _words(tokens: Sequence[_Token], at: int) -> _Number:
    """Return a number in words: "twenty-four", "one hundred and twenty", "two thousand"."""
    value, end = _below_hundred(tokens, at)
    if _at(tokens, end).text == "oclock":
        return _clock(tokens, end - 1, int(value))._replace(start=at)
    number = _multiplied(tokens, -value if _is_negative(tokens, at) else value, at, end)
    rest = number.end + (_at(tokens, number.end).text.casefold() == "and")
    if (
        _at(tokens, number.end - 1).text.casefold() != "hundred"
        or _at(tokens, rest).text.casefold() not in _NUMBERS
    ):
        return number
    more, end = _below_hundred(tokens, rest)
    return _Number(Fraction(number.value) + more, at, end)


def _is_negative(tokens: Sequence[_Token], at: int) -> bool:
    return _at(tokens, at - 1).text.casefold() == "minus"


def _below_hundred(tokens: Sequence[_Token], at: int) -> tuple[Fraction, int]:
    """Return a number in words, and the token after it."""
    value, end = _NUMBERS[tokens[at].text.casefold()], at + 1
    unit = end + (_at(tokens, end).text == "-")
    one = _NUMBERS.get(_at(tokens, unit).text.casefold(), 0)
    if value > _TEN and value % _TEN == 0 and 0 < one < _TEN:
        return Fraction(value + one), unit + 1
    return Fraction(value), end


def _multiplied(tokens: Sequence[_Token], value: Fraction, at: int, end: int) -> _Number:
    while True:
        token = _at(tokens, end)
        word = token.text.casefold()
        if word not in _MULTIPLES or (word == "k" and not token.joined) or value > MAX_DIGITS**MAX_DIGITS:
            return _Number(value, at, end)
        value = value * _MULTIPLES[word]
        end += 1


def _unit(
    tokens: Sequence[_Token], number: _Number, starts: Mapping[int, _Number], units: Mapping[int, _Unit]
) -> _Unit:
    """Return the unit of a number; one that has none in its own words has that of the number it is a range with."""
    one, end = Fraction(1), number.end
    if number.kind:
        return _Unit(number.kind, one, end)
    before = _at(tokens, number.start - 1).text
    currency = _measure(before)[0]
    if currency in _CURRENCIES and len(before) <= len(currency):
        return _Unit(currency, one, end)
    if _at(tokens, end).joined and _at(tokens, end).text in _ORDINAL_ENDINGS:
        end += 1
    measured, place = _measured(tokens, end)
    if measured is not None:
        return measured
    named = _named(tokens, number.start)
    if named in _NAMED or before == "-":
        return _Unit(named, one, end)
    for start in (end + 1, end + 2):
        if start in starts and _is_range(tokens, end, start) and units[start].name:
            return units[start]._replace(end=end)
    after = _at(tokens, place)
    if after.kind == "word" and (after.text == "times" or after.text.casefold() not in _NO_NOUN):
        return _Unit(evened(after.text), one, place + 1)
    return _Unit("" if named in _NO_NOUN else named, one, end)


def _measured(tokens: Sequence[_Token], end: int) -> tuple[_Unit | None, int]:
    """Return the unit of measure that follows a number if there is one, and the place of the noun."""
    place = end + (_at(tokens, end).text == "-" and _at(tokens, end + 1).kind == "word")
    is_business = False
    while (word := _at(tokens, place).text.casefold()) in _FILLERS:
        is_business |= word in _BUSINESS
        place += 1
    unit, scale = _measure(_at(tokens, place).text)
    if not unit:
        return None, place
    if is_business and unit == "second":
        days = Fraction(_WORKING_WEEK) if evened(word) == "week" else Fraction(1)
        noun = "day" if evened(word) == "week" else evened(word)
        return _Unit(f"business {noun}", days, place + 1), place
    return _Unit(unit, scale, place + 1), place


def _measure(word: str) -> tuple[str, Fraction]:
    if word in _CASED:
        return "", Fraction(1)
    return _SCALES.get(word.casefold(), ("", Fraction(1)))


def _named(tokens: Sequence[_Token], start: int) -> str:
    """Return the word before a number, which may be joined to it: HTTP 429, UTF-8."""
    before = _at(tokens, start - 1)
    if before.text == "#" or (before.text == "-" and before.joined and tokens[start].joined):
        before = _at(tokens, start - 2)
    noun = evened(before.text.casefold()) if before.kind == "word" else ""
    return "version" if noun in _VERSIONS else noun


def _is_range(tokens: Sequence[_Token], end: int, start: int) -> bool:
    """Return whether only a word such as "to", and a sign of currency, stand between two numbers."""
    between = [token.text.casefold() for token in tokens[end:start]]
    if between and _measure(between[-1])[0] in _CURRENCIES:
        between.pop()
    return len(between) == 1 and between[0] in _BETWEEN


def _rate(tokens: Sequence[_Token], end: int) -> Figure | None:
    """Return the time of a rate that ends a quantity: 100 requests per minute, twice a day."""
    word = _at(tokens, end).text.casefold()
    if word in _ADVERBS:
        return Figure(_ADVERBS[word], PER)
    after = _at(tokens, end + 1).text.casefold()
    if word in {*_ARTICLES, "per", "each", "every", "/"} and _measure(after)[0] in _TIMES:
        scale = _measure(after)
        name = next(name for name, known in _SCALES.items() if known == scale)
        return Figure(name, PER)
    return None


def _plain(value: Fraction | str, scale: Fraction) -> str:
    """Return a value in decimal notation, or as a fraction where that has no end."""
    if isinstance(value, str):
        return value
    value *= scale
    text = format(_EXACT.divide(Decimal(value.numerator), Decimal(value.denominator)), "f")
    return text if Fraction(text) == value else str(value)


def _names(tokens: Sequence[_Token]) -> Iterable[Figure]:
    """Yield the figures within words: v2, Q4, p95, order numbers."""
    for token in tokens:
        if token.kind == "word" and any(map(str.isdecimal, token.text)):
            noun = token.text.rstrip("0123456789.")
            value = token.text[len(noun) :]
            noun = evened(noun.rstrip("_").casefold())
            if not (noun.isalpha() and value):
                yield Figure(token.text.casefold(), NAME)
            else:
                value = value.lstrip("0") or "0" if value.isdecimal() else value
                yield Figure(value, "version" if noun in _VERSIONS else noun)
