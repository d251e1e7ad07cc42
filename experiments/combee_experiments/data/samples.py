"""What experiments learn from and are examined on: ACE samples from a file, or the built-in task family."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Literal

from combee.core.formats.ace_protocol import SampleKind
from combee.core.formats.intake import Sample, read_line
from combee_sim.family.family import one_each, questions
from combee_sim.family.knowledge import NOTHING_KNOWN, Knowledge, read_knowledge
from combee_sim.family.quantities import QUANTITIES
from combee_sim.law.samples import FAMILY_SIZE

Kind = Literal["family"] | SampleKind
"""How answers are scored and lessons counted."""

PLAYBOOK = "experiment"
FAMILY_SAMPLES = 500
"""As many as the Formula data have."""
HELD_OUT = 5
"""One sample of so many is kept for the exam where no exam file is at hand."""
MAX_LINE_CHARS = 1_000_000


class DataError(ValueError):
    """The data cannot be used; the message names the file and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """One experiment's data; ``train`` is learned from, in order, and ``exam`` never is."""

    name: str
    """As tables print it."""
    kind: Kind
    train: tuple[Sample, ...]
    exam: tuple[Sample, ...]
    knowledge: Knowledge = NOTHING_KNOWN
    """The rows behind the samples: which formula a question is about, say. For the stand-in and for counting."""


def family(count: int = FAMILY_SAMPLES, *, seed: int = 0, quantities: int = FAMILY_SIZE) -> Data:
    """Return questions of the built-in family (simulated); the exam asks for each quantity once."""
    drawn, asked = Random(seed), QUANTITIES[:quantities]  # noqa: S311 - reproducible, not secret
    source = questions(drawn, asked)
    train = [next(source) for _ in range(count)]
    exam = one_each(Random(f"exam {seed}"), asked)  # noqa: S311 - the same
    return Data(
        name="task family",
        kind="family",
        train=tuple(_sample("family", n, one.text, one.target) for n, one in enumerate(train, 1)),
        exam=tuple(_sample("family-exam", n, one.text, one.target) for n, one in enumerate(exam, 1)),
    )


def load(train: Path, exam: Path | None = None, *, seed: int = 0) -> Data:
    """Return the samples of ACE-style JSONL files.

    Without ``exam`` it is the ``…_dev.jsonl`` next to a ``…_train.jsonl``; where there is none, a fifth of
    the samples, drawn with the seed, is held out.

    Raises
    ------
    DataError
        If a file cannot be read or a line is no sample.
    """
    learned = read_samples(train)
    exam = exam or beside(train)
    examined = read_samples(exam) if exam else ()
    if not examined:
        mixed = subset(learned, None, seed)
        held = len(mixed) // HELD_OUT
        examined, kept = mixed[:held], {one.trace_id for one in mixed[held:]}
        learned = tuple(one for one in learned if one.trace_id in kept)
    known = sum((read_knowledge(path) for path in (train, exam) if path), NOTHING_KNOWN)
    return Data(name=train.name, kind=kind_of(learned), train=learned, exam=examined, knowledge=known)


def beside(train: Path) -> Path | None:
    """Return the file that belongs to a training file as its exam, if it is there."""
    found = train.with_name(train.name.replace("train", "dev"))
    return found if found != train and found.is_file() else None


def read_samples(path: Path) -> tuple[Sample, ...]:
    """Return a file's samples; ids are file and line, so that a row given twice counts twice.

    Raises
    ------
    DataError
        If the file cannot be read, is empty, or a line is no sample.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name}: {error}") from error
    samples = tuple(_read(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not samples:
        raise DataError(f"{path.name}: no samples in it")
    return samples


def _read(path: Path, number: int, line: str) -> Sample:
    if len(line) > MAX_LINE_CHARS:
        raise DataError(f"{path.name}, line {number}: longer than {MAX_LINE_CHARS:,} characters")
    try:
        item = read_line(line, PLAYBOOK)
    except (ValueError, RecursionError) as error:
        # Not LineError alone: a lone surrogate fails where the line's id is made.
        raise DataError(f"{path.name}, line {number}: {error}") from error
    if not isinstance(item, Sample):
        held = type(item).__name__.lower()
        raise DataError(f'{path.name}, line {number}: a {held}, not a sample {{"context", "target"}}')
    if not item.target.strip():
        raise DataError(f"{path.name}, line {number}: its target is empty")
    return replace(item, trace_id=_trace_id(path.stem, number))


def _sample(origin: str, number: int, question: str, target: str) -> Sample:
    return Sample(trace_id=_trace_id(origin, number), playbook=PLAYBOOK, question=question, target=target)


def _trace_id(origin: str, number: int) -> str:
    return f"{origin}-{number:05d}"


def kind_of(samples: Sequence[Sample]) -> Kind:
    """Return what kind of data these are, if every single sample is of it."""
    kinds = {sample.kind for sample in samples}
    return kinds.pop() if len(kinds) == 1 else "text"


def subset(samples: Sequence[Sample], count: int | None, seed: int) -> tuple[Sample, ...]:
    """Return ``count`` samples (None: all) in an order drawn with the seed; fewer are a prefix of more."""
    mixed = Random(seed).sample(samples, len(samples))  # noqa: S311 - reproducible, not secret
    return tuple(mixed[:count])
