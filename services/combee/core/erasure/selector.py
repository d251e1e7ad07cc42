"""What is to be forgotten: a person by what names them, or runs by a rule."""

import json
import string
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from combee.core.replaying.selection import TIMED, Selection
from combee_schemas.base import playbook_of
from combee_schemas.erasure import SelectorKind
from combee_schemas.outcome import Outcome
from combee_schemas.reflection import Reflection
from combee_schemas.trace import RUN_FIELDS, Trace

LEAST_CHARS = 3
"""A shorter subject names half of all texts."""
CUT_AT = frozenset({300, 1_000, 2_000, 8_000})
"""Lengths at which texts are cut: details of changes, excerpts of tasks, answers, contents of entries."""
LEAST_CUT = 3
"""So many characters of a subject at a cut count as the subject."""
_PLAIN = frozenset(string.ascii_letters + string.digits + "_.-~")


def folded(text: str) -> str:
    """Return what spellings of one text have in common: neither case nor composed letters matter."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _spellings(subject: str) -> Iterator[str]:
    """Yield a subject as it stands in plain text, in JSON within a text, and in an address of the web."""
    yield subject
    yield json.dumps(subject)[1:-1]
    quoted = "".join(c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode()) for c in subject)
    yield quoted
    yield quoted.replace("%20", "+")


@dataclass(frozen=True, slots=True)
class Subjects:
    """Texts that name a person; empty: nobody is looked for."""

    given: tuple[str, ...] = field(default=(), repr=False)
    _needles: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Work out the spellings.

        Raises
        ------
        ValueError
            If one is too short to name anybody.
        """
        if any(len(text.strip()) < LEAST_CHARS for text in self.given):
            raise ValueError(f"a subject has at least {LEAST_CHARS} characters")
        needles = (folded(spelling) for text in self.given for spelling in _spellings(text.strip()))
        object.__setattr__(self, "_needles", tuple(dict.fromkeys(needles)))

    def named_in(self, text: str) -> bool:
        """Return whether a text names one of them, or was cut in the middle of a name."""
        if not self._needles:
            return False
        looked_at = folded(text)
        if any(needle in looked_at for needle in self._needles):
            return True
        return len(text) in CUT_AT and any(
            looked_at.endswith(needle[:length])
            for needle in self._needles
            for length in range(LEAST_CUT, len(needle))
        )

    def named_in_bytes(self, raw: bytes | None) -> bool:
        """Return whether bytes name one of them; texts in our records are plain UTF-8."""
        return raw is not None and bool(self._needles) and self.named_in(raw.decode(errors="replace"))


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
        return f"erased-{blake2b(folded(text).encode(errors='replace'), key=self.secret, digest_size=6).hexdigest()}"
