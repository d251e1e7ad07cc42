"""The fate of a reflection: its words and its rule, for the ledger, the tracker and the gateway; pure."""

from enum import IntEnum
from typing import Literal

Effect = Literal["new", "known", "dropped", "lost"]
"""What an applied reflection did to its playbook.

New: something rests on it now. Known: it counts for an entry that says it already, or echoes one. Dropped: the model
left it out by name. Lost: none of these, which is the only effect to worry about.
"""


class Fate(IntEnum):
    """Where a reflection is; of an id that was published several times, the highest counts."""

    LOST = 0
    """It is nowhere: a promise is broken."""
    WAITING = 1
    """It waits in its window."""
    IN_BATCH = 2
    """Its batch has no version yet."""
    APPLIED = 3
    DEAD_LETTERED = 4
    DROPPED = 5
    """An operator let its dead letter go."""

    @property
    def is_pending(self) -> bool:
        """Whether its service still works on it."""
        return self in {Fate.WAITING, Fate.IN_BATCH}

    @property
    def is_dead(self) -> bool:
        """Whether it ended as a dead letter."""
        return self >= Fate.DEAD_LETTERED


def fate_of(
    *,
    letter: Fate | None = None,
    batched: bool = False,
    applied: bool = False,
    answered: bool = True,
    passed: bool = False,
) -> Fate:
    """Return where a reflection is, by its last attempt.

    ``letter``: what its dead letter came to if an attempt after that of its batch failed; None: none did.
    ``batched``: it is in a batch; ``applied``: that batch has a version; ``answered``: a copy of it got through.
    ``passed``: its reader has read beyond it.
    """
    if letter is not None:
        return letter
    if not batched:
        return Fate.LOST if passed else Fate.WAITING
    if not applied:
        return Fate.IN_BATCH
    return Fate.APPLIED if answered else Fate.LOST


def fate_of_letter(decision: Literal["dropped", "retried"] | None, *, passed: bool = False) -> Fate:
    """Return the fate of a record with a dead letter; ``passed``: its reader has read beyond where it stands again.

    By then it would be in a batch: its reader took it for a repeat, or could not use it.
    """
    if decision == "retried":
        return fate_of(passed=passed)
    return Fate.DROPPED if decision == "dropped" else Fate.DEAD_LETTERED
