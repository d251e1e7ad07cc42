"""Settable faults: a hash of a call's prompt and repeat count decides whether it is hit."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from combee_sim.chance import draw

Fault = Literal["429", "500", "reset", "hang", "truncated", "malformed", "huge", "empty"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
ALIASES: Mapping[str, Fault] = {"5xx": "500", "10mb": "huge"}
PROMPTS_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Share of calls per kind of fault; together at most 1."""

    rates: Mapping[Fault, float] = field(default_factory=dict)

    def hit(self, seed: int, prompt_hash: str, times_seen: int) -> Fault | None:
        """Return the fault of this call, if any; a repeated prompt may succeed."""
        chance = draw("fault", seed, prompt_hash, times_seen)
        for kind in FAULTS:
            chance -= self.rates.get(kind, 0.0)
            if chance < 0:
                return kind
        return None


def fault_rates(given: Mapping[str, object]) -> FaultRates:
    """Check kinds and rates.

    Raises
    ------
    ValueError
        If a kind is unknown, a rate is no number from 0 to 1, or they sum to more than 1.
    """
    rates: dict[Fault, float] = {}
    for name, value in given.items():
        kind = ALIASES.get(name.casefold(), name)
        if kind not in FAULTS:
            raise ValueError(f"unknown fault {name!r}; there are {', '.join(FAULTS)}")
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"fault {name}: the rate must be a number from 0 to 1, not {value!r}")
        rates[kind] = float(value)
    if sum(rates.values()) > 1:
        raise ValueError("the fault rates sum to more than 1")
    return FaultRates(rates)


def parse_faults(texts: Iterable[str]) -> FaultRates:
    """Read texts such as ``429=0.05``.

    Raises
    ------
    ValueError
        If one cannot be read.
    """
    given: dict[str, object] = {}
    for text in texts:
        name, _, rate = text.partition("=")
        try:
            given[name.strip()] = float(rate)
        except ValueError as error:
            raise ValueError(f"fault {text!r}: expected KIND=RATE such as 429=0.05") from error
    return fault_rates(given)


class TimesSeen:
    """Number of times each prompt was asked; the oldest prompts are forgotten."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def count(self, prompt_hash: str) -> int:
        """Return how often a prompt was asked before, and count this call."""
        before = self._counts.pop(prompt_hash, 0)
        self._counts[prompt_hash] = before + 1
        if len(self._counts) > PROMPTS_REMEMBERED:
            self._counts.popitem(last=False)
        return before
