"""A consumer in a group: it commits only when asked, and reports an assignment before its first record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiokafka
import aiokafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from combee.adapters.kafka.connection import METADATA_AGE_MS, Connection
from combee.adapters.kafka.errors import translated
from combee.adapters.kafka.fetch_waits import wait_longer_when_idle
from combee.adapters.kafka.lifetime import started, stopped
from combee.adapters.ports import NO_NOTES, FatalError, OnAssigned, Record, TopicPartition, TransientError

MAX_POLL_RECORDS = 500
FETCH_BYTES = 256 * 1024
"""Maximum bytes fetched ahead per partition; a larger record is still fetched, alone."""
NEVER = -1
"""The committed offset of a partition without a commit."""


class _Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    def __init__(self) -> None:
        self.changed = False

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:  # noqa: ARG002
        self.changed = True

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:  # noqa: ARG002
        self.changed = True


class KafkaConsumer:
    """The ``Consumer`` port. Rebalances are handled inside ``poll``, in order with the records.

    aiokafka calls its listener while fetches run, and a slow listener delays the whole group. So the listener only
    notes the change. The next ``poll`` seeks every partition to its committed offset and reports the assignment.
    Records fetched during the change are dropped and fetched again.
    """

    def __init__(self, connection: Connection, group: str, on_assigned: OnAssigned) -> None:
        self._connection = connection
        self._group = group
        self._on_assigned = on_assigned
        self._listener = _Listener()
        self._membership = connection.membership(group)
        self._need = connection.need("Read", group=group)
        """The rights that reading needs, for error messages."""
        self._starts: dict[TopicPartition, int] = {}
        self._notes: dict[TopicPartition, str] = {}
        self._consumer = aiokafka.AIOKafkaConsumer(
            **connection.client,
            group_id=connection.full(group),
            group_instance_id=self._membership.instance_id,
            enable_auto_commit=False,
            # aiokafka must not reset silently: _seek handles a missing offset, and an expired one is fatal.
            auto_offset_reset="none",
            isolation_level="read_committed",
            # Only this assignor gives a member the same partition numbers of all co-partitioned topics.
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=connection.session_timeout_ms,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=120_000,
            max_partition_fetch_bytes=FETCH_BYTES,
            metadata_max_age_ms=METADATA_AGE_MS,
        )

    async def start(self, topics: Sequence[str]) -> None:
        """Join the group."""
        self._need = self._connection.need("Read", *topics, group=self._group)
        with translated(f"joining group {self._group}", self._need):
            await started(self._consumer.start())
            self._membership.watch(self._consumer)
            wait_longer_when_idle(self._consumer)
            self._consumer.subscribe([self._connection.full(t) for t in topics], listener=self._listener)

    async def poll(self, timeout_s: float) -> Sequence[Record]:
        self._membership.check()
        with translated(f"reading as {self._group}", self._need):
            if self._listener.changed:
                await self._reassign()
            try:
                fetched = await self._consumer.getmany(
                    timeout_ms=int(timeout_s * 1000), max_records=MAX_POLL_RECORDS
                )
            except aiokafka.errors.NoOffsetForPartitionError:
                # A fetch began before _reassign could seek; the next poll calls it.
                self._listener.changed = True
                return ()
        if self._listener.changed:
            return ()
        return [self._connection.record(record) for records in fetched.values() for record in records]

    async def _reassign(self) -> None:
        self._listener.changed = False
        assigned = self._consumer.assignment()
        try:
            # One request for all partitions: a broker answers one request per connection at a time.
            firsts = await self._consumer.beginning_offsets(assigned)
            self._starts = {self._connection.ours(tp): await self._seek(tp, firsts[tp]) for tp in assigned}
            await self._on_assigned(frozenset(self._starts))
        except aiokafka.errors.IllegalStateError:
            self._listener.changed = True  # revoked again meanwhile
        except (aiokafka.errors.KafkaError, TransientError):
            self._listener.changed = True  # the next poll repeats all of it
            raise

    async def _seek(self, partition: Any, first: int) -> int:
        # The public method returns the offset without its metadata.
        known = await self._consumer._coordinator.fetch_committed_offsets([partition])  # noqa: SLF001
        committed = known[partition].offset if partition in known else None
        committed = None if committed == NEVER else committed
        self._notes[self._connection.ours(partition)] = "" if committed is None else known[partition].metadata
        if committed is not None and committed < first:
            raise FatalError(
                f"{partition.topic}[{partition.partition}] begins at {first}, after the committed offset"
                f" {committed}: records expired unread. Raise the topic's retention, look at"
                " 'combee ledger' for what is missing, then reset the group's offset by hand"
            )
        start: int = first if committed is None else committed
        self._consumer.seek(partition, start)
        return start

    async def start_offset(self, source: TopicPartition) -> int:
        return self._starts[source]

    async def note(self, source: TopicPartition) -> str:
        return self._notes.get(source, "")

    def seek(self, source: TopicPartition, offset: int) -> None:
        self._consumer.seek(self._connection.theirs(source), offset)

    async def commit(
        self, offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str] = NO_NOTES
    ) -> None:
        owned = self._consumer.assignment()
        theirs = {self._connection.theirs(tp): (offset, notes.get(tp, "")) for tp, offset in offsets.items()}
        mine = {tp: offset_and_note for tp, offset_and_note in theirs.items() if tp in owned}
        if not mine:
            return
        with translated(f"committing as {self._group}", self._need):
            try:
                await self._consumer.commit(mine)
            except (aiokafka.errors.CommitFailedError, aiokafka.errors.IllegalStateError):
                return  # a rebalance is under way; the next owner gets the records again

    async def positions(self) -> Mapping[TopicPartition, int]:
        if self._listener.changed:
            return {}
        with translated(f"reading as {self._group}", self._need):
            owned = self._consumer.assignment()
            return {
                tp: await self._consumer.position(theirs)
                for tp in self._starts
                if (theirs := self._connection.theirs(tp)) in owned
            }

    def pause(self, *sources: TopicPartition) -> None:
        self._consumer.pause(*self._owned(sources))

    def resume(self, *sources: TopicPartition) -> None:
        self._consumer.resume(*self._owned(sources))

    def _owned(self, sources: Iterable[TopicPartition]) -> list[Any]:
        owned = self._consumer.assignment()
        return [tp for tp in map(self._connection.theirs, sources) if tp in owned]

    async def close(self) -> None:
        await stopped(self._consumer)
