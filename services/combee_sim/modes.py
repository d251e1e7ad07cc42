"""Modes: the ways in which the stand-in can be made to fail as real models do; simulated, and off by default.

A rate says how often; ``roles/failing.py`` does it. What an overloaded call does with the lessons that it overlooks
has a name instead of a rate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal, get_args

NOTICED = 0.8
"""Probability that a model notices that two texts in one call are equal, or contradict each other."""
USUAL: Mapping[str, float] = {
    "paraphrase": NOTICED,
    "invented": 2.0,
    "correlated": 0.1,
    "contradictions": 0.2,
    "false_yes": 0.1,
    "false_no": 0.1,
}
"""A mode's default rate."""
MAX_INVENTED = 100.0
Way = Literal["silent", "named", "lumped", "claimed", "blurred"]
Overload = Literal[Way, "mixed"]
WAYS: tuple[Way, ...] = get_args(Way)
OVERLOAD: tuple[Overload, ...] = (*WAYS, "mixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """How often the stand-in fails, by the way in which it does."""

    paraphrase: float | None = None
    """Each lesson is worded in one of several ways; the rate is the probability that two wordings in one call are
    merged."""
    invented: float = 0.0
    """Number of lessons that one aggregator call invents, each different; a fraction is a probability."""
    correlated: float = 0.0
    """Share of reflections that state one of a few invented lessons, the same ones repeatedly."""
    contradictions: float = 0.0
    """Share of reflections that state the opposite of the run's lesson."""
    false_yes: float = 0.0
    """Probability that a check call says that all is well with a lesson that no statement says, or with a rewrite
    that lost something."""
    false_no: float = 0.0
    """Probability that a check call leaves out a lesson that a statement says, or reports a rewrite that lost
    nothing."""
    overload: Overload | None = None
    """What an aggregator does with lessons that it overlooks. ``silent``: it does not mention them; ``named``: their
    items are in ``dropped``; ``lumped``: in the sources of another operation; ``claimed``: in ``known``, with some
    entry's id (lumped if there are no entries); ``blurred``: an operation says them without figures, conditions and
    negations; ``mixed``: one of these for each lesson, by chance. None: what the prompt says about ``dropped``."""

    def summary(self) -> tuple[str, ...]:
        """Return the active modes in their command-line form."""
        active = {name: rate for name, rate in asdict(self).items() if rate != _OFF[name]}
        overload = active.pop("overload", None)
        return (*(f"{name}={rate:g}" for name, rate in active.items()), *((overload,) if overload else ()))


_OFF = {field.name: field.default for field in fields(Modes)}
NO_MODES = Modes()


def parse_modes(given: Iterable[str]) -> Modes:
    """Read ``MODE`` or ``MODE=RATE``, each mode once, and at most one name of `OVERLOAD`.

    Raises
    ------
    ValueError
        If there is no such mode, its rate is out of range, or there are two ways of overload.
    """
    rates: dict[str, float | None] = {}
    overload: Overload | None = None
    for text in given:
        if text in OVERLOAD:
            if overload not in (None, text):
                raise ValueError(f"mode {text!r}: a run has one of {', '.join(OVERLOAD)}, not {overload} too")
            overload = next(name for name in OVERLOAD if name == text)
            continue
        name, equals, number = text.partition("=")
        if name in OVERLOAD:
            raise ValueError(f"mode {text!r}: {name} has no rate")
        if name not in USUAL:
            raise ValueError(f"mode {name!r}: there are {', '.join((*USUAL, *OVERLOAD))}")
        try:
            rate = float(number) if equals else USUAL[name]
        except ValueError:
            raise ValueError(f"mode {text!r}: expected {name}=RATE") from None
        most = MAX_INVENTED if name == "invented" else 1.0
        if not 0.0 <= rate <= most:
            raise ValueError(f"mode {text!r}: the rate must be from 0 to {most:g}")
        rates[name] = rate
    return Modes(overload=overload, **rates)  # type: ignore[arg-type]
