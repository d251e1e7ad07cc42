"""The attempt number of a record: its headers claim one, and a dead letter proves it.

The headers name the place of the dead letter. It never changes, so each reading of the record gives the same attempt.
"""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing

from combee.adapters.ports import Log, PoisonError, Record, TopicPartition
from combee.core.log.dead_letters.resending import is_proven
from combee_schemas import topics
from combee_schemas.dead_letter import Attempt, DeadLetter, LetterId
from combee_schemas.errors import OtherVersionError
from combee_schemas.reflection import Reflection

LETTERS = topics.DEAD_LETTERS.name
REMEMBERED = 4_096
READ_AT_ONCE, BYTES_AT_ONCE = 500, 4 << 20
"""Maximum number (and bytes) of dead letters read ahead: letters are sent again in order, and each read opens a
reader."""


class Attempts:
    """Looks up dead letters. Anybody can claim one, so false claims must be cheap: most cost no request."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._known: OrderedDict[LetterId, DeadLetter | OtherVersionError | None] = OrderedDict()
        """Letters by place, without their bytes; None: no letter about a reflection stands there."""
        self._ends: Mapping[int, int] = {}
        self._asked_after: Mapping[int, int] = {}
        """Ends of ``reflections``, looked up before ``_ends``: letters named below them are below ``_ends``."""

    async def proven(self, claim: Attempt, record: Record, reflection: Reflection) -> tuple[int, str | None]:
        """Return the attempt that a record claims to be (0: the claim is unproven) and its line.

        A first attempt counts on all lines that learn from the playbook (None), a repeat on the line where it failed.

        Raises
        ------
        PoisonError
            If another release wrote the letter at the claimed place: headers must not stop this service.
        """
        if not await self._is_there(claim.letter, record):
            return 0, None
        if claim.letter not in self._known:
            await self._read_from(claim.letter)
        letter = self._known[claim.letter]
        if isinstance(letter, OtherVersionError):
            raise PoisonError(f"whether it is a repeat cannot be read: {letter}") from letter
        if letter is None or not is_proven(claim, letter, reflection, record.value or b""):
            return 0, None
        return claim.number, letter.playbook

    async def _is_there(self, place: LetterId, record: Record) -> bool:
        """Return whether a letter can be there: a record is sent again only after its letter was read."""
        if place.offset >= self._ends.get(place.partition, 0) and record.offset >= self._asked_after.get(
            record.partition, 0
        ):
            self._asked_after = await self._log.ends(topics.REFLECTIONS.name)
            self._ends = await self._log.ends(LETTERS)
        return place.offset < self._ends.get(place.partition, 0)

    async def _read_from(self, first: LetterId) -> None:
        source = TopicPartition(topic=LETTERS, partition=first.partition)
        end, size = min(first.offset + READ_AT_ONCE, self._ends[first.partition]), 0
        self._known[first] = None  # where it has expired, or a marker stands
        async with aclosing(self._log.read(source, first.offset, end)) as records:
            async for record in records:
                self._known[LetterId(partition=record.partition, offset=record.offset)] = _letter(record)
                size += len(record.value or b"")
                if size > BYTES_AT_ONCE:
                    break
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _letter(record: Record) -> DeadLetter | OtherVersionError | None:
    try:
        letter = topics.DEAD_LETTERS.read_or_none(record)
    except OtherVersionError as error:
        return error
    if letter is None or letter.origin_topic != topics.REFLECTIONS.name:
        return None
    return letter.model_copy(update={"key": None, "value": None, "proof": None, "reason": ""})
