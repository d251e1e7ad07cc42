"""Modes: the ways in which the stand-in can be made to fail as real models do; simulated, and off by default.

A mode says how often; ``roles/failing.py`` does it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

NOTICED = 0.8
"""Probability that a model notices that two texts in one call are equal, or contradict each other."""
USUAL: Mapping[str, float] = {
    "paraphrase": NOTICED,
    "invented": 2.0,
    "correlated": 0.1,
    "contradictions": 0.2,
}
"""A mode's default rate."""
MAX_INVENTED = 100.0


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

    def summary(self) -> tuple[str, ...]:
        """Return the active modes in their command-line form."""
        return tuple(f"{name}={rate:g}" for name, rate in asdict(self).items() if rate != _OFF[name])


_OFF = {field.name: field.default for field in fields(Modes)}
NO_MODES = Modes()


def parse_modes(given: Iterable[str]) -> Modes:
    """Read ``MODE`` or ``MODE=RATE``, each mode once.

    Raises
    ------
    ValueError
        If there is no such mode, or its rate is out of range.
    """
    rates: dict[str, float | None] = {}
    for text in given:
        name, equals, number = text.partition("=")
        if name not in USUAL:
            raise ValueError(f"mode {name!r}: there are {', '.join(USUAL)}")
        try:
            rate = float(number) if equals else USUAL[name]
        except ValueError:
            raise ValueError(f"mode {text!r}: expected {name}=RATE") from None
        most = MAX_INVENTED if name == "invented" else 1.0
        if not 0.0 <= rate <= most:
            raise ValueError(f"mode {text!r}: the rate must be from 0 to {most:g}")
        rates[name] = rate
    return Modes(**rates)  # type: ignore[arg-type]
