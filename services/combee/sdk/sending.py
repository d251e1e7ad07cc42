"""Sending what waits: redacted, cut to size, retried until it is acknowledged, in order."""

import asyncio
from collections.abc import Sequence

from combee.ports import FatalError, PoisonError, TransientError
from combee.sdk.cutting import fitted
from combee.sdk.logs import Once, logger
from combee.sdk.outbox import Outbox
from combee.sdk.redaction import Redact, redacted
from combee.sdk.transport import Sent, Transport
from combee_schemas.codec import CodecError
from combee_schemas.trace import Trace

MOST_AT_ONCE = 200
BYTES_AT_ONCE = 1 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


class Sender:
    """Empties an outbox into a transport; runs on the background loop."""

    def __init__(self, outbox: Outbox, transport: Transport, redact: Redact | None, once: Once) -> None:
        self._outbox = outbox
        self._transport = transport
        self._redact = redact
        self._once = once
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self.asleep = False
        """Whether somebody who fills the outbox has to wake this."""
        self.delivered = 0
        self.refused = 0

    def wake(self) -> None:
        """Look into the outbox again."""
        self._wake.set()

    async def run(self) -> None:
        """Send for ever."""
        while True:
            batch = self._outbox.first(MOST_AT_ONCE, BYTES_AT_ONCE)
            if batch:
                await self._send([one for one in map(self._prepared, batch) if one is not None])
                self._outbox.done(len(batch))
                continue
            self._empty.set()
            self._wake.clear()
            self.asleep = True
            if not len(self._outbox):  # else it was filled between the look and the note
                await self._wake.wait()
            self.asleep = False
            self._empty.clear()

    async def emptied(self) -> None:
        """Wait until nothing waits."""
        while len(self._outbox):
            self._empty.clear()
            self._wake.set()
            await self._empty.wait()

    def _prepared(self, message: Sent) -> Sent | None:
        """Return the message as it may leave; None: it never can, and is counted."""
        try:
            clean = redacted(message, self._redact) if self._redact else message
            if isinstance(clean, Trace):
                return fitted(clean)
        except CodecError as error:
            self._refuse(str(error))
            return None
        except Exception as error:  # noqa: BLE001 - the redactor may be a user's; unredacted nothing leaves
            self._refuse(f"redaction failed with {type(error).__name__}; look at your redact function")
            return None
        return clean

    def _refuse(self, why: str) -> None:
        self.refused += 1
        self._once.warn("refused", "a message was dropped: %s; more are only counted", why)

    async def _send(self, messages: Sequence[Sent]) -> None:
        pause_s = FIRST_PAUSE_S
        while messages:
            try:
                await self._transport.send(messages)
            except PoisonError as error:
                if len(messages) == 1:
                    self._refuse(str(error))
                    return
                for one in messages:  # find out which it is; repeats are harmless
                    await self._send([one])
                return
            except (TransientError, FatalError) as error:
                self._once.warn("away", "nothing can be sent for now, it is kept and tried again: %s", error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self.delivered += len(messages)
                self._once.over("away", "sending works again")
                logger.debug("delivered %d messages", len(messages))
                return
