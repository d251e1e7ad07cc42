"""What is to be forgotten: a person by what names them, or runs by a rule."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from combee.core.replaying.selection import TIMED, Selection
from combee.core.text import comparable
from combee_schemas.base import playbook_of
from combee_schemas.erasure import SelectorKind
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.trace import RUN_FIELDS, Trace

LEAST_CHARS = 3
"""A shorter subject names half of all texts."""
CUT_AT = frozenset({300, 1_000, 2_000, *range(7_998, 8_001)})
"""Lengths at which texts are cut: details of changes, excerpts of tasks, answers, contents of entries. The last lose
a space or a joiner at their end as well."""
LEAST_CUT = 3
"""So many characters of a subject at a cut count as the subject."""
MOST_NESTED = 3
"""So often a text is read that stands in JSON, or in an address, that stands in another."""
_ESCAPE = re.compile(r'(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[nrtbf"\\/])')
_QUOTED = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_NOT_IN_NAMES = (re.compile(r"[^\w.-]+"), re.compile(r"[\W_]+"))
"""What labels and branches cannot have, and what makes words."""


def _spellings(subject: str) -> Iterator[str]:
    """Yield a subject as it stands in a text, and as a label, a branch, an id or an address of the web has it."""
    yield subject
    for joint in "-_.+":
        yield joint.join(subject.split())
        yield from (other.sub(joint, subject).strip(joint) for other in _NOT_IN_NAMES)


def _readings(text: str) -> Iterator[str]:
    """Yield a text, and what it says where JSON or an address of the web within it is read."""
    yield text
    readings = [text]
    for _ in range(MOST_NESTED):
        readings = list(dict.fromkeys(read for said in readings for read in _read(said) if read != said))
        yield from readings


def _read(text: str) -> Iterator[str]:
    if "\\" in text:
        yield _ESCAPE.sub(_unescaped, text)
    if "%" in text:
        yield _QUOTED.sub(_unquoted, text)


def _unquoted(quoted: re.Match[str]) -> str:
    return bytes.fromhex(quoted[0].replace("%", "")).decode(errors="replace")


def _unescaped(escape: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escape[0]}"'))
    except ValueError:
        return escape[0]


@dataclass(frozen=True, slots=True)
class Subjects:
    """Texts that name a person; empty: nobody is looked for."""

    given: tuple[str, ...] = field(default=(), repr=False)
    needles: tuple[str, ...] = field(init=False, repr=False)
    """All spellings, to be looked for in comparable text; the longest first."""

    def __post_init__(self) -> None:
        """Work out the spellings.

        Raises
        ------
        ValueError
            If one is too short to name anybody.
        """
        if any(len(comparable(text)) < LEAST_CHARS for text in self.given):
            raise ValueError(f"a subject has at least {LEAST_CHARS} characters")
        spellings = (comparable(spelling) for text in self.given for spelling in _spellings(text))
        needles = (spelling for spelling in spellings if len(spelling) >= LEAST_CHARS)
        longest_first = sorted(dict.fromkeys(needles), key=len, reverse=True)
        object.__setattr__(self, "needles", tuple(longest_first))

    def named_in(self, text: str) -> bool:
        """Return whether a text names one of them, or was cut in the middle of a name."""
        if not self.needles:
            return False
        readings = [comparable(reading) for reading in _readings(text)]
        if any(needle in reading for reading in readings for needle in self.needles):
            return True
        return len(text) in CUT_AT and any(
            readings[0].endswith(needle[:length])
            for needle in self.needles
            for length in range(LEAST_CUT, len(needle))
        )

    def named_in_bytes(self, raw: bytes | None) -> bool:
        """Return whether bytes name one of them; texts in our records are plain UTF-8."""
        return raw is not None and bool(self.needles) and self.named_in(raw.decode(errors="replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """What one run of ``combee forget`` is about."""

    subjects: Subjects = Subjects()
    rules: tuple[Selection, ...] = ()
    playbook: str = ""
    """The only one whose runs are meant by ``rules``; empty: all."""
    kind: SelectorKind = "subject"

    def means_reflection(self, reflection: Reflection, at_ms: int) -> bool:
        """Return whether a rule means a reflection that came at ``at_ms``."""
        if self.playbook not in {"", playbook_of(reflection.playbook)}:
            return False
        return any(rule.matches(reflection, at_ms) for rule in self.rules)

    def means_run(self, run: Trace | Outcome, at_ms: int) -> bool:
        """Return whether a rule means a run that came at ``at_ms``: it is looked at as a reflection is."""
        identity = run.trace_id if isinstance(run, Trace) else run.run_id
        texts = {name: getattr(run, name) for name in RUN_FIELDS} if isinstance(run, Trace) else {}
        stands_for = Reflection(
            reflection_id=identity,
            trace_id=identity,
            playbook=run.playbook,
            source=run.source,
            side_info=texts,
        )
        return bool(self.rules) and self.means_reflection(stands_for, at_ms)

    @property
    def timeless(self) -> "Selector":
        """The same without rules about times, for what says of a reflection only whose it is."""
        rules = tuple(rule for rule in self.rules if rule.kind not in TIMED)
        return Selector(subjects=self.subjects, rules=rules, playbook=self.playbook, kind=self.kind)


@dataclass(frozen=True, slots=True)
class Marker:
    """Writes what stands in the place of a text: the same for the same text, and for nobody else to work out."""

    secret: bytes = field(repr=False)
    """Known to one run of ``combee forget``, and written nowhere."""

    def __call__(self, text: str) -> str:
        """Return the mark of a text."""
        said = comparable(text).encode(errors="replace")
        return f"erased-{blake2b(said, key=self.secret, digest_size=6).hexdigest()}"
