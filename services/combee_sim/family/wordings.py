"""One lesson in several wordings: writing them, and reading any of them back as the reflector's own.

Each kind of lesson that the reflector knows has templates; the first of them is its own, *plain* wording. Any other
text has frames around it. The meaning of a wording is its plain wording.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from combee_sim.family.desk import RULES, folded

MAX_CHARS = 4_000
"""Maximum characters of a text that is searched for a reworded lesson."""
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Template:
    """One way to say a lesson of one kind."""

    text: str
    phrases: int = 0
    """Number of the phrase used for fields that have several."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A pattern of lessons in this wording; the last field is greedy, the others are not."""
        first, *rest = _FIELD.split(self.text.rstrip("."))
        parts = [
            f"(?P<{name}>.+?){re.escape(after)}" for name, after in zip(rest[::2], rest[1::2], strict=True)
        ]
        # A field ends at the first occurrence of the following text; no other end is tried.
        fields = [*(f"(?>{field})" for field in parts[:-1]), *parts[-1:]]
        end = r"\.?" if self.text.endswith(".") else ""
        return re.compile(re.escape(first) + "".join(fields) + end, re.IGNORECASE | re.DOTALL)

    @cached_property
    def sign(self) -> str:
        """The longest fixed piece of this wording, searched first because that is cheap."""
        return max(_FIELD.split(self.text)[::2], key=len).rstrip(".").casefold()


@dataclass(frozen=True)
class Phrase:
    """One part of a lesson in several phrasings; numbered places are its fields."""

    ways: Sequence[str]

    def in_way(self, text: str, way: int) -> str:
        """Return ``text``, if it is one of the phrasings, in another one; other texts unchanged."""
        for known in self.ways:
            if match := _pattern(known).fullmatch(text.strip()):
                return self.ways[way % len(self.ways)].format(
                    *(match[f"p{n}"] for n in range(_places(known)))
                )
        return text


@lru_cache(maxsize=256)
def _pattern(way: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\d)\}", way)
    named: set[str] = set()
    pieces = []
    for n, part in enumerate(parts):
        if n % 2 == 0:
            pieces.append(re.escape(part))
        else:
            pieces.append(f"(?P=p{part})" if part in named else f"(?P<p{part}>.{{1,100}}?)")
            named.add(part)
    return re.compile("".join(pieces), re.IGNORECASE)


@lru_cache(maxsize=256)
def _places(way: str) -> int:
    return len(set(re.findall(r"\{(\d)\}", way)))


@dataclass(frozen=True)
class Kind:
    """All wordings of one kind of lesson, the plain one first."""

    templates: Sequence[Template]
    phrases: Mapping[str, Sequence[Phrase]]
    """Field → its possible texts, each in several phrasings."""

    def read(self, text: str) -> tuple[Template, dict[str, str]] | None:
        """Return the template that a text follows and its fields, each in its first phrasing."""
        folded = text.casefold()
        for template in self.templates:
            if template.sign in folded and (match := template.pattern.fullmatch(text)):
                return template, {name: self._said(name, part, 0) for name, part in match.groupdict().items()}
        return None

    def write(self, template: Template, fields: Mapping[str, str]) -> str:
        """Return the lesson with these fields in a template's words."""
        parts = {name: self._said(name, part, template.phrases) for name, part in fields.items()}
        return template.text.format_map(parts)

    def _said(self, name: str, text: str, way: int) -> str:
        for phrase in self.phrases.get(name, ()):
            if (other := phrase.in_way(text, way)) != text:
                return other
        return text


CONVENTION = Kind(
    templates=(
        Template("Report the {quantity} in {unit} with {places}, computed as {how}."),
        Template("For the {quantity}, take {how}, state the outcome in {unit} and keep {places}.", 1),
        Template("Whoever asks about the {quantity} wants {how}, expressed in {unit}, at {places}.", 2),
        Template("The figure for the {quantity} has {places} and stands in {unit}; it comes from {how}.", 1),
        Template("To get the {quantity} right, work out {how}; give it in {unit}, rounded to {places}.", 2),
        Template("With {unit} as unit and {places} shown, the {quantity} is found from {how}.", 0),
    ),
    phrases={
        "how": (
            Phrase(
                (
                    "{0} divided by the sum of {0} and {1}",
                    "the share that {0} have in {0} and {1} together",
                    "{0} as a part of the total of {0} and {1}",
                )
            ),
            Phrase(
                (
                    "the excess of {0} over {1} divided by {1}",
                    "the growth from {1} to {0} measured against {1}",
                    "the amount by which {0} surpass {1} relative to {1}",
                )
            ),
            Phrase(
                (
                    "one minus {0} divided by {1}",
                    "the part of {1} that {0} do not make up",
                    "whatever of {1} is left after {0} as a part of the whole",
                )
            ),
            Phrase(("{0} divided by {1}", "the ratio of {0} to {1}", "{0} for each one of {1}")),
        )
    },
)
FORMULA = Kind(
    templates=(
        Template("{name}: compute it with {formula} and give {shape}, to {places} decimals."),
        Template("For {name}, apply {formula}; what is expected is {shape} ({places} decimals).", 1),
        Template("Questions on {name} want {shape}, rounded to {places} decimals; calculate {formula}.", 2),
        Template("An answer on {name} is right as {shape} with {places} decimals, from {formula}.", 1),
        Template(
            "Do not guess at {name}: {formula} leads to it, written as {shape} at {places} decimals.", 2
        ),
        Template("State {name} as {shape}, keeping {places} decimals, by way of {formula}.", 1),
    ),
    phrases={
        "shape": (
            Phrase(
                (
                    "a bare percentage number, not a fraction",
                    "the number of percent, without a sign",
                    "percentage points instead of a share of one",
                )
            ),
            Phrase(
                (
                    "the plain value, not a percentage",
                    "the value as it is, unscaled",
                    "a simple figure instead of percentage points",
                )
            ),
        )
    },
)
EQUATION = Kind(
    templates=(
        Template("When the result of an equation is {size}, try {names} for the missing operators."),
        Template("Missing operators are likely {names} where the outcome of the equation is {size}."),
        Template("An equation whose right side is {size} usually hides {names}."),
        Template("Look at the result: if it is {size}, begin with {names}."),
        Template("Begin with {names} as soon as an equation comes out {size}."),
    ),
    phrases={},
)
TAGGING = Kind(
    templates=(
        Template("Use the tag {tag} for the entity in a sentence that states the {meaning}."),
        Template("An entity that gives the {meaning} is labelled {tag}."),
        Template("Label with {tag} whatever number a text names as the {meaning}."),
        Template("Where a filing mentions the {meaning}, its figure takes {tag}."),
        Template("{tag} is what to choose when the {meaning} is spoken of."),
    ),
    phrases={},
)
NO_TAG = Kind(
    templates=(
        Template("Do not use the tag {tag} for the entity in a sentence that states the {meaning}."),
        Template("An entity that gives the {meaning} is never labelled {tag}."),
        Template("Never label with {tag} a number that a text names as the {meaning}."),
        Template("Where a filing mentions the {meaning}, its figure must not take {tag}."),
        Template("{tag} is the wrong choice when the {meaning} is spoken of."),
    ),
    phrases={},
)
FREE = Kind(
    templates=(
        Template("{text}"),
        Template("Worth knowing before the next such task: {text}"),
        Template("What this kind of run teaches is this: {text}"),
        Template("{text} (this decided how an earlier run went.)"),
        Template("An earlier run went as it did for one reason: {text}"),
        Template("Check this point before any answer goes out: {text}"),
    ),
    phrases={},
)
DESK: Mapping[str, Kind] = {
    folded(text): kind
    for rule in RULES
    for kind in (Kind(templates=tuple(map(Template, rule.wordings)), phrases={}),)
    for text in rule.wordings
}
"""The rules of the service desk by each of their wordings."""
KINDS: tuple[Kind, ...] = (CONVENTION, FORMULA, EQUATION, NO_TAG, TAGGING)
FEWEST = min(len(kind.templates) for kind in (*KINDS, FREE))
"""Minimum number of wordings of a lesson; the service desk's rules have three."""


@lru_cache(maxsize=20_000)
def plain(text: str) -> str:
    """Return a lesson in its plain wording; a text that follows no template is plain."""
    kind, template, fields = _read(text)
    return text if template is kind.templates[0] else kind.write(kind.templates[0], fields)


def in_words(lesson: str, chance: float) -> str:
    """Return a lesson in one of its wordings, picked by a number in [0, 1)."""
    kind, _, fields = _read(lesson)
    return kind.write(kind.templates[int(chance * len(kind.templates))], fields)


def all_wordings(lesson: str) -> tuple[str, ...]:
    """Return a lesson in every wording, the plain one first."""
    kind, _, fields = _read(lesson)
    return tuple(kind.write(template, fields) for template in kind.templates)


def fields_of(kind: Kind, lesson: str) -> Mapping[str, str] | None:
    """Return the parts of a lesson, if it is of a kind, in any wording."""
    known, _, fields = _read(lesson)
    return fields if known is kind else None


def _read(text: str) -> tuple[Kind, Template, dict[str, str]]:
    if len(text) > MAX_CHARS:
        return FREE, FREE.templates[0], {"text": text}
    for kind in (DESK[folded(text)],) if folded(text) in DESK else KINDS:
        if fields := kind.read(" ".join(text.split())):
            return kind, *fields
    return FREE, *_unframed(text)


def _unframed(text: str) -> tuple[Template, dict[str, str]]:
    for template in FREE.templates[1:]:
        if template.sign in text.casefold() and (match := template.pattern.fullmatch(text)):
            return template, match.groupdict()
    return FREE.templates[0], {"text": text}
