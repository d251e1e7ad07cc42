"""The fate of a reflection: its vocabulary and rule, for the ledger, the tracker and the gateway; pure."""

from enum import IntEnum
from typing import Literal

Effect = Literal["new", "known", "dropped", "omitted"]
"""Effect of an applied reflection on its playbook.

new: a change rests on it. known: it counts for an entry with the same content, or echoes one. dropped: the model left
it out by name, and is believed. omitted: none of these, the only effect to worry about."""


class Fate(IntEnum):
    """The state of a reflection; of several records with one id, the highest counts."""

    LOST = 0
    """The reflection is nowhere: a promise is broken."""
    WAITING = 1
    """It waits in its window."""
    IN_BATCH = 2
    """Its batch has no version yet."""
    APPLIED = 3
    DEAD_LETTERED = 4
    DROPPED = 5
    """An operator dropped its dead letter."""

    @property
    def is_pending(self) -> bool:
        """Whether a service still works on it."""
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
    """Return the fate of a reflection's last attempt.

    ``letter``: fate of the dead letter of an attempt after that of its batch; None: there is none. ``batched``: it is
    in a batch; ``applied``: that batch has a version; ``answered``: a copy of it got through. ``passed``: its reader
    has read beyond it.
    """
    if letter is not None:
        return letter
    if not batched:
        return Fate.LOST if passed else Fate.WAITING
    if not applied:
        return Fate.IN_BATCH
    return Fate.APPLIED if answered else Fate.LOST


def fate_of_letter(decision: Literal["dropped", "retried"] | None, *, passed: bool = False) -> Fate:
    """Return the fate of a record with a dead letter; ``passed``: its reader has read beyond the resent record.

    A passed record without a batch was a repeat, or was unusable.
    """
    if decision == "retried":
        return fate_of(passed=passed)
    return Fate.DROPPED if decision == "dropped" else Fate.DEAD_LETTERED
