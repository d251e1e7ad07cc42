"""The two faces of the client: one waits, the other is awaited; the engine under both is the same."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from combee.sdk.counts import Delivery
from combee.sdk.face import FLUSH_S, WAIT_S, Face
from combee.sdk.logs import logger
from combee.sdk.reader import Ask
from combee.sdk.view import PlaybookView
from combee_schemas.playbook import LATEST


def _guarded(callback: Callable[[PlaybookView], Any], view: PlaybookView) -> None:
    try:
        callback(view)
    except Exception:  # noqa: BLE001 - a user's code; the next update must still come
        logger.exception("an on_update callback failed; the next update calls it again")


class Client(Face):
    """A deployment, for programs without an event loop. Use it as a context manager, or call ``close``.

    >>> with Client("127.0.0.1:9092") as combee:              # doctest: +SKIP
    ...     combee.playbook("support/refunds", fallback="Be brief.").render()
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._callbacks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="combee-update")

    def playbook(
        self,
        name: str,
        *,
        label: str = LATEST,
        version: int | None = None,
        fallback: str = "",
        timeout_s: float = WAIT_S,
    ) -> PlaybookView:
        """Return a playbook from memory; only what is not known yet is waited for, ``timeout_s`` (s) at most.

        ``version`` goes before ``label``. Nothing raises: without an answer it is the last known text, from memory or
        disk, else ``fallback``.
        """
        ask = Ask(name=name, label=label, version=version, fallback=fallback)
        return self.engine.playbook(ask, timeout_s)

    def on_update(
        self, name: str, callback: Callable[[PlaybookView], object], *, label: str = LATEST
    ) -> Callable[[], None]:
        """Call ``callback`` with what is known now and with each newer version, on a thread of its own, in order.

        Returns how to end it. What the callback raises is logged. A deleted playbook comes as an empty fallback.
        """
        return self.engine.subscribe(name, label, lambda view: _submitted(self._callbacks, callback, view))

    def ready(self, timeout_s: float = WAIT_S) -> bool:
        """Wait until the playbooks are known that there were at the start; False after ``timeout_s`` (s)."""
        return self.engine.wait(self.engine.ready(timeout_s), lambda: False)

    def flush(self, timeout_s: float = FLUSH_S) -> Delivery:
        """Wait until what is buffered is acknowledged, ``timeout_s`` (s) at most; say what was not."""
        return self.engine.wait(self.engine.flush(timeout_s), self.engine.counts)

    def close(self, timeout_s: float = FLUSH_S) -> Delivery:
        """Deliver what is buffered, within ``timeout_s`` (s), and disconnect; say what was not delivered."""
        counts = self.engine.close(timeout_s)
        self._callbacks.shutdown(wait=False, cancel_futures=True)
        return counts

    def __enter__(self) -> Self:
        self.engine.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _submitted(
    executor: ThreadPoolExecutor, callback: Callable[[PlaybookView], object], view: PlaybookView
) -> None:
    try:
        executor.submit(_guarded, callback, view)
    except RuntimeError:
        return  # closed meanwhile


class AsyncClient(Face):
    """A deployment, for programs with an event loop: what waits is awaited. Use it with ``async with``."""

    async def playbook(
        self,
        name: str,
        *,
        label: str = LATEST,
        version: int | None = None,
        fallback: str = "",
        timeout_s: float = WAIT_S,
    ) -> PlaybookView:
        """See ``Client.playbook``."""
        ask = Ask(name=name, label=label, version=version, fallback=fallback)
        return await self.engine.awaited_playbook(ask, timeout_s)

    def on_update(
        self, name: str, callback: Callable[[PlaybookView], Any], *, label: str = LATEST
    ) -> Callable[[], None]:
        """See ``Client.on_update``; the callback, plain or async, runs on the loop that subscribed."""
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()

        async def call(view: PlaybookView) -> None:
            try:
                if inspect.isawaitable(found := callback(view)):
                    await found
            except Exception:  # noqa: BLE001 - see above
                logger.exception("an on_update callback failed; the next update calls it again")

        def begin(view: PlaybookView) -> None:
            task = loop.create_task(call(view))
            running.add(task)
            task.add_done_callback(running.discard)

        def notify(view: PlaybookView) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(begin, view)

        return self.engine.subscribe(name, label, notify)

    async def ready(self, timeout_s: float = WAIT_S) -> bool:
        """See ``Client.ready``."""
        return await self.engine.awaited(self.engine.ready(timeout_s), lambda: False)

    async def flush(self, timeout_s: float = FLUSH_S) -> Delivery:
        """See ``Client.flush``."""
        return await self.engine.awaited(self.engine.flush(timeout_s), self.engine.counts)

    async def close(self, timeout_s: float = FLUSH_S) -> Delivery:
        """See ``Client.close``."""
        return await asyncio.to_thread(self.engine.close, timeout_s)

    async def __aenter__(self) -> Self:
        self.engine.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
