"""Modes: the ways in which the stand-in can be made to fail as real models do; simulated, and off by default.

A mode says how often; ``roles/failing.py`` does it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields

NOTICED = 0.8
"""The chance that a model notices that two texts which reach one call say the same, or contradict each other."""
USUAL: Mapping[str, float] = {
    "paraphrase": NOTICED,
    "invented": 2.0,
    "correlated": 0.1,
    "contradictions": 0.2,
}
"""A mode's rate where none is given."""
MOST_INVENTED = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """How often the stand-in fails, by the way in which it does."""

    paraphrase: float | None = None
    """Each lesson is said in one of several wordings; the chance that two wordings in one call are merged."""
    invented: float = 0.0
    """Lessons that an aggregator's call makes up, each different; a fraction is a chance."""
    correlated: float = 0.0
    """The share of reflections that state one of a few invented lessons, the same ones over and over."""
    contradictions: float = 0.0
    """The share of reflections that state the opposite of what the run shows."""

    def summary(self) -> tuple[str, ...]:
        """Return the modes that are on, as they are given on a command line."""
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
        most = MOST_INVENTED if name == "invented" else 1.0
        if not 0.0 <= rate <= most:
            raise ValueError(f"mode {text!r}: the rate must be from 0 to {most:g}")
        rates[name] = rate
    return Modes(**rates)  # type: ignore[arg-type]
