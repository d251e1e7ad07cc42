"""What an attacker who searches may vary."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from combee.adapters.ports import Outgoing
from combee_experiments.attacks.producers import ATTACKS, NONE, ROUNDS, WARM_UP, Round

KINDS = tuple(attack for attack in ATTACKS if attack != NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a searcher may vary: which attacks follow one another, from when on, and how often."""

    kinds: tuple[str, ...]
    begins: int = WARM_UP
    every: int = 1

    def attack(self, now: Round) -> Iterator[Outgoing]:
        """Yield what an attacker sends in a round."""
        if now.turn >= self.begins and now.turn % self.every == 0:
            yield from ATTACKS[self.kinds[now.turn // self.every % len(self.kinds)]](now)

    def varied(self, rng: Random) -> "Plan":
        """Return a plan with one thing changed."""
        kinds = list(self.kinds)
        match rng.randrange(5):
            case 0:
                kinds[rng.randrange(len(kinds))] = rng.choice(KINDS)
            case 1:
                kinds.append(rng.choice(KINDS))
            case 2 if len(kinds) > 1:
                kinds.pop(rng.randrange(len(kinds)))
            case 3:
                return replace(self, begins=rng.randrange(WARM_UP, ROUNDS - 6))
            case _:
                return replace(self, every=rng.choice((1, 2, 3)))
        return replace(self, kinds=tuple(kinds[:4]))
