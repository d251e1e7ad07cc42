"""The selector of an erasure: a person by their names, or runs by a rule."""

import html
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby

from combee.core.log.replaying.selection import TIMED, Selection
from combee.core.text.forms import comparable
from combee_schemas.base import playbook_of
from combee_schemas.erasure import SelectorKind
from combee_schemas.reflection import Reflection
from combee_schemas.topics import Published
from combee_schemas.trace import RUN_FIELDS, Trace

MIN_CHARS = 3
"""Minimum length of a subject: a shorter one occurs in half of all texts."""
CUT_AT = frozenset({300, 1_000, 2_000, *range(7_998, 8_001)})
"""Lengths at which texts are cut: details of changes, excerpts of tasks, answers, contents of entries. Contents may
also lose a space or a joiner at their end."""
MIN_CUT = 3
"""Minimum number of a subject's characters before a cut that count as the subject."""
MAX_NESTED = 3
"""Maximum nesting of formats that is decoded, such as JSON in HTML in an e-mail."""
_ESCAPE = re.compile(
    r"""\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4} | \\u[0-9a-fA-F]{4} | \\[nrtbf"'\\/]  # JSON
      | \\u\{[0-9a-fA-F]{1,6}\} | \\U[0-9a-fA-F]{8}  # JavaScript, Python
      | (?:\\x[0-9a-fA-F]{2} | \\[0-3][0-7]{2})+  # bytes, as Python, C and git show them
      | &(?:\#[0-9]{1,64} | \#[xX][0-9a-fA-F]{1,64} | [A-Za-z][A-Za-z0-9]{1,31});?  # HTML
    """,
    re.VERBOSE,
)
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_QUOTED_PRINTABLE = re.compile(r"(?:=(?:[0-9a-fA-F]{2}|[ \t]*\r?\n))+")
_BLANK = re.compile(
    r"""<[/!?A-Za-z][^<>]*> | \[(?=[^\[\]\n]*\][(\[]) | \](?:\([^()\n]*\) | \[[^\[\]\n]*\])  # HTML, links of Markdown
      | \n[\s>|\#*/%;]+ | [\u115f\u1160\u2800\u3164\uffa0]
    """,
    re.VERBOSE,
)
"""Matches separators of words other than spaces: markup, line prefixes (quotations, comments), blank letters."""
_QUOTES = frozenset(" *_~`\"'‘’“”«»|│")
"""Characters other than spaces that may separate the words of a name: emphasis, quotation marks and cell borders."""
_MARK = re.compile(r"erased-[0-9a-f]{12}")
_NOT_IN_NAMES = (re.compile(r"[^\w.-]+"), re.compile(r"[\W_]+"))
"""Patterns of characters that labels and branches cannot have, and of those between words."""


def _spellings(subject: str) -> Iterator[str]:
    """Yield the spellings of a subject: in texts, labels, branches, ids and web addresses."""
    yield subject
    for joint in "-_.+":
        yield joint.join(subject.split())
        yield from (other.sub(joint, subject).strip(joint) for other in _NOT_IN_NAMES)


def _readings(text: str) -> Iterator[str]:
    """Yield a text, and its readings with escapes of embedded formats decoded."""
    yield text
    readings = [text]
    for _ in range(MAX_NESTED):
        readings = list(dict.fromkeys(read for known in readings for read in _read(known) if read != known))
        yield from readings


def _read(text: str) -> Iterator[str]:
    if "\\" in text or "&" in text:
        yield _ESCAPE.sub(lambda escape: _meaning(escape[0]), text)
    if "%" in text:
        yield _PERCENT.sub(_unquoted, text)
        yield _PERCENT.sub(_unquoted, text.replace("+", " "))  # of a form
    if "=" in text:
        yield _QUOTED_PRINTABLE.sub(_unquoted, text)


def _unquoted(quoted: re.Match[str]) -> str:
    digits = quoted[0].replace("%", "").replace("=", "")
    return bytes.fromhex(digits).decode(errors="replace")  # an escaped end of line: nothing


@lru_cache(maxsize=1_024)
def _meaning(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] in "0123x":
        return _text_of(
            bytes(int(byte[1:], 16) if byte[0] == "x" else int(byte, 8) for byte in escape[1:].split("\\"))
        )
    if escape[1] == "'":
        return "'"
    try:
        if escape[1] == "U" or escape[2:3] == "{":
            return chr(int(escape[2:].strip("{}"), 16))
        return str(json.loads(f'"{escape}"'))
    except (ValueError, OverflowError):
        return escape


def _text_of(raw: bytes) -> str:
    """Return the text in bytes that are UTF-8, or single characters."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


_Name = tuple[tuple[str, ...], tuple[str, ...], re.Pattern[str]]


def _name(subject: str) -> _Name:
    """Return the words of a subject, the signs between them, and the pattern of comparable text with them.

    Between words the pattern allows signs, and spaces where the subject has some.
    """
    name = comparable(subject)
    name = name.strip("".join(char for char in name if not _is_of_word(char)))
    runs = [(is_word, "".join(run)) for is_word, run in groupby(name, _is_of_word)]
    pattern = "".join(
        re.escape(run) if is_word else r"([\W_]+)" if " " in run else r"((?:[^\w\s]|_)+)"
        for is_word, run in runs
    )
    words, signs = (tuple(run for is_word, run in runs if is_word is wanted) for wanted in (True, False))
    return words, tuple(map(str.strip, signs)), re.compile(rf"(?<![^\W_])(?={pattern}(?![^\W_]))")


def _is_joint(run: str, sign: str) -> bool:
    """Return whether the words on both sides may be one name: no space adjoins a sign but its own, as in lists."""
    run = run.replace(sign, "", 1)
    return (" " not in run or _QUOTES.issuperset(run)) and not any(map(_is_of_word, run))


def _is_of_word(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char)[0] == "M"


@dataclass(frozen=True, slots=True)
class Subjects:
    """Texts that name a person; empty: no person is looked for."""

    given: tuple[str, ...] = field(default=(), repr=False)
    needles: tuple[str, ...] = field(init=False, repr=False)
    """All spellings to find in comparable text, longest first."""
    _names: tuple[_Name, ...] = field(init=False, repr=False)
    """Those of several words."""

    def __post_init__(self) -> None:
        """Compute the spellings.

        Raises
        ------
        ValueError
            If one is too short to name anybody.
        """
        if any(len(comparable(text)) < MIN_CHARS for text in self.given):
            raise ValueError(f"a subject has at least {MIN_CHARS} characters")
        spellings = (comparable(spelling) for text in self.given for spelling in _spellings(text))
        needles = (spelling for spelling in spellings if len(spelling) >= MIN_CHARS)
        longest_first = sorted(dict.fromkeys(needles), key=len, reverse=True)
        object.__setattr__(self, "needles", tuple(longest_first))
        object.__setattr__(self, "_names", tuple(name for name in map(_name, self.given) if len(name[0]) > 1))

    def named_in(self, text: str) -> bool:
        """Return whether a text names a subject, or was cut in the middle of a name."""
        if not self.needles:
            return False
        read = list(_readings(text))
        readings = [comparable(reading) for reading in read]
        if any(needle in reading for reading in readings for needle in self.needles):
            return True
        if any(map(self._has_words, read, readings)):
            return True
        return len(text) in CUT_AT and any(
            readings[0].endswith(needle[:length])
            for needle in self.needles
            for length in range(MIN_CUT, len(needle))
        )

    def _has_words(self, text: str, reading: str) -> bool:
        """Return whether a text has a subject's words in order, with joints between them."""
        likely = [name for name in self._names if all(word in reading for word in name[0])]
        if not likely:
            return False
        text = comparable(_BLANK.sub(" ", text))
        return any(
            all(map(_is_joint, match.groups(), signs))
            for _, signs, pattern in likely
            for match in pattern.finditer(text)
        )

    def named_in_bytes(self, raw: bytes | None) -> bool:
        """Return whether bytes name a subject; texts in Combee's records are plain UTF-8."""
        return raw is not None and bool(self.needles) and self.named_in(raw.decode(errors="replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """The selection of one run of ``combee forget``."""

    subjects: Subjects = Subjects()
    rules: tuple[Selection, ...] = ()
    playbook: str = ""
    """The only playbook that ``rules`` apply to; empty: all."""
    kind: SelectorKind = "subject"

    def means_reflection(self, reflection: Reflection, at_ms: int) -> bool:
        """Return whether a rule selects a reflection that arrived at ``at_ms``."""
        if self.playbook not in {"", playbook_of(reflection.playbook)}:
            return False
        return any(rule.matches(reflection, at_ms) for rule in self.rules)

    def means(self, message: Published, at_ms: int) -> bool:
        """Return whether a rule selects a message that arrived at ``at_ms``, judged like a reflection."""
        if isinstance(message, Reflection):
            return self.means_reflection(message, at_ms)
        texts = {name: getattr(message, name) for name in RUN_FIELDS} if isinstance(message, Trace) else {}
        stands_for = Reflection(
            reflection_id=message.run_id,
            trace_id=message.run_id,
            playbook=message.playbook,
            source=message.source,
            side_info=texts,
        )
        return bool(self.rules) and self.means_reflection(stands_for, at_ms)

    @property
    def timeless(self) -> "Selector":
        """The selector without rules about times, for messages that name only a reflection's owner."""
        rules = tuple(rule for rule in self.rules if rule.kind not in TIMED)
        return Selector(subjects=self.subjects, rules=rules, playbook=self.playbook, kind=self.kind)


@dataclass(frozen=True, slots=True)
class Marker:
    """Writes the placeholder of a text: equal for equal texts, and impossible to compute for others."""

    secret: bytes = field(repr=False)
    """Random secret of one run of ``combee forget``, stored nowhere."""

    def __call__(self, text: str) -> str:
        """Return the placeholder of a text; one of an earlier erasure stays."""
        if _MARK.fullmatch(text):
            return text
        normal = comparable(text).encode(errors="replace")
        return f"erased-{blake2b(normal, key=self.secret, digest_size=6).hexdigest()}"
