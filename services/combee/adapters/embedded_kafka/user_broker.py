"""The user's own broker: one locked data directory, so that every command sees the same topics."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

from combee.adapters.embedded_kafka import jars
from combee.adapters.embedded_kafka.cluster import EmbeddedKafka, Ready
from combee.adapters.embedded_kafka.data_dir import ClusterState, RunState, home_dir
from combee.adapters.embedded_kafka.errors import BrokerStartError, EmbeddedKafkaError, storage_errors
from combee.adapters.embedded_kafka.locks import file_lock
from combee.adapters.embedded_kafka.node import node_process

LOCK_TIMEOUT_S = 120.0
JOIN_TIMEOUT_S = 30.0
DELETED_S = 15.0
"""Maximum seconds that an unused broker keeps running to delete the files of deleted topics."""
CHECK_EVERY_S = 0.2
"""Seconds between checks whether a broker in use still runs."""
STEADY_S = 10.0
"""Seconds of running after which a broker is restarted at once; otherwise the wait before each attempt doubles."""
BACK_OFF_S, LONGEST_BACK_OFF_S = 0.5, 30.0


@asynccontextmanager
async def open_user_broker(
    home: Path | None = None,
    *,
    ready: Ready,
    env: Mapping[str, str],
    progress: jars.Progress | None = None,
    tell: Callable[[str], None] = lambda _line: None,
) -> AsyncIterator[str]:
    """Yield the address of the broker on ``home``: the one that runs, else a new one.

    It runs while any command uses it; the last command to leave stops it. A broker that dies is restarted on its data
    and ports; ``tell`` is called with a line about each start.

    DirectoryInUseError: another command has been starting or stopping it for ``LOCK_TIMEOUT_S``.
    """
    home = home or home_dir()
    kafka = SharedKafka(home, ready=ready, env=env, progress=progress)
    async with use_broker(kafka, LOCK_TIMEOUT_S, tell) as bootstrap_servers:
        yield bootstrap_servers


@asynccontextmanager
async def use_broker(
    kafka: "SharedKafka", lock_timeout_s: float, tell: Callable[[str], None] = lambda _line: None
) -> AsyncIterator[str]:
    """Join or start the broker, yield its address, keep it running meanwhile, and leave it again."""
    try:
        if not await _joined(kafka, lock_timeout_s, start=False):
            tell(f"starting Kafka, with its data in {kafka.data_dir}")
            # Without the lock: the first call downloads the broker.
            await kafka.prepare()
            await _joined(kafka, lock_timeout_s, start=True)
        keeping = asyncio.create_task(kafka.keep_running(lock_timeout_s, tell))
        try:
            yield kafka.bootstrap_servers
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            async with kafka.locked(lock_timeout_s):
                await kafka.leave()
    finally:
        kafka.release()


async def _joined(kafka: "SharedKafka", lock_timeout_s: float, *, start: bool) -> bool:
    async with kafka.locked(lock_timeout_s):
        joined = await kafka.join()
        if start and not joined:
            await kafka.start()
        return joined or start


class SharedKafka(EmbeddedKafka):
    """One broker that several processes use; the caller holds the directory's lock around each method."""

    _exclusive = False

    @property
    def data_dir(self) -> Path:
        """The folder with its data."""
        return self._data_dir

    def locked(self, timeout_s: float) -> AbstractAsyncContextManager[None]:
        """Hold the directory's lock; only one command at a time decides what becomes of the broker."""
        with storage_errors(self._data_dir):
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return file_lock(self._data_dir / "lock", timeout_s, what="Combee's data directory")

    async def join(self) -> bool:
        """Use the broker that runs in this directory; return False if there is none."""
        run, node = RunState.load(self._data_dir), self._nodes[0]
        if run is None or node.node_id not in run.pids:
            return False
        process = node_process(self._data_dir, node.node_id, run.pids[node.node_id])
        if not process.alive():
            return False
        if not node.lease.take(exclusive=False):
            # Its users have ended without leaving, and its guard is stopping it.
            await process.wait_ended(JOIN_TIMEOUT_S)
            return False
        self._cluster, node.process = ClusterState.load(self._data_dir), process
        await self._until_it_answers(process.pid)
        return True

    async def leave(self, timeout_s: float = 20) -> None:
        """Stop the broker if nobody else uses it, with kill -9 after ``timeout_s``."""
        node = self._nodes[0]
        if node.lease.take(exclusive=True):
            await self._until_deleted(min(timeout_s, DELETED_S))
            await self.stop(timeout_s)
        elif not node.lease.take(exclusive=False) and node.process:
            # The lease is then held by its guard, which is stopping it, not by other users.
            await node.process.wait_ended(JOIN_TIMEOUT_S)

    async def _until_deleted(self, timeout_s: float) -> None:
        """Wait until files of deleted topics have left the disk, because a stopped broker would keep them."""
        node = self._nodes[0]
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while node.alive and node.deletes:  # noqa: ASYNC110 - Kafka sets no event
                    await asyncio.sleep(CHECK_EVERY_S)

    async def keep_running(self, lock_timeout_s: float, tell: Callable[[str], None]) -> None:
        """Restart the broker whenever it ends; a broker restarted by another process is used, too."""
        node, pause_s = self._nodes[0], BACK_OFF_S
        began_s = asyncio.get_running_loop().time()
        while True:
            while node.alive:  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(CHECK_EVERY_S)
            if asyncio.get_running_loop().time() - began_s > STEADY_S:
                pause_s = BACK_OFF_S
                tell("Kafka has ended: it is started again on its data and its ports")
            else:
                tell(f"Kafka has ended: it is started again in {pause_s:g} s")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_BACK_OFF_S)
            began_s = asyncio.get_running_loop().time()
            try:
                async with self.locked(lock_timeout_s):
                    if not await self.join():
                        await self.start()
                tell(f"Kafka answers again at {self.bootstrap_servers}")
            except (EmbeddedKafkaError, OSError) as error:  # for example no memory for another process
                node.lease.take(exclusive=False)  # a failed start has released it
                tell(str(error))

    def _may_move(self) -> bool:
        # Other holders of the lease know the broker by its ports.
        lease = self._nodes[0].lease
        alone = super()._may_move() and lease.take(exclusive=True)
        lease.take(exclusive=False)
        return alone

    def release(self) -> None:
        """Give the lease back, stopped or not."""
        self._nodes[0].lease.release()

    async def _until_it_answers(self, pid: int) -> None:
        try:
            async with asyncio.timeout(JOIN_TIMEOUT_S):
                await self._until_ready(self._nodes[0])
        except TimeoutError as error:
            raise BrokerStartError(
                f"The broker in {self._data_dir} (process {pid}) runs but does not answer. "
                f"End it with `kill {pid}` and try again."
            ) from error
