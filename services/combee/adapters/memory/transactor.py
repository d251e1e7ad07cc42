"""Transactions in memory: atomic, and the older of two owners of a name is fenced."""

from collections.abc import Mapping, Sequence
from types import TracebackType

from combee.adapters.memory.store import Pending, Store
from combee.adapters.ports import FatalError, Outgoing, TopicPartition, TransientError


class MemoryTransaction:
    """The ``Transaction`` port."""

    def __init__(self, store: Store, name: str, epoch: int, pending: Pending) -> None:
        self._store = store
        self._name = name
        self._epoch = epoch
        self._pending = pending

    async def send(self, *outgoing: Outgoing) -> Sequence[int]:
        self._store.check(self._name, self._epoch)
        return [self._store.write(record, self._pending) for record in outgoing]

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._store.check(self._name, self._epoch)
        self._pending.offsets.setdefault(group, {}).update(offsets)


class _Scope:
    """A class, not a generator: a scope dropped by a kill must leave its transaction open."""

    def __init__(self, owner: "MemoryTransactor") -> None:
        self._owner = owner

    async def __aenter__(self) -> MemoryTransaction:
        return self._owner.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.end(failed=error is not None)


class MemoryTransactor:
    """The ``Transactor`` port."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._epoch = store.initialise(name)
        self._closed = False
        self._busy = False

    def transaction(self) -> _Scope:
        return _Scope(self)

    def begin(self) -> MemoryTransaction:
        """Open the one transaction that may be open at a time."""
        if self._closed:
            raise TransientError(f"transactional id {self._name} has been given up")
        if self._busy:
            raise FatalError(f"transactional id {self._name} has an open transaction already")
        self._store.check(self._name, self._epoch)
        self._busy = True
        return MemoryTransaction(self._store, self._name, self._epoch, self._store.begin(self._name))

    def end(self, *, failed: bool) -> None:
        """Commit, or abort after an error; a fenced one was aborted by its successor."""
        self._busy = False
        if failed and not self._store.owns(self._name, self._epoch):
            return
        self._store.settle(self._name, self._epoch, "aborted" if failed else "committed")

    async def close(self) -> None:
        self._closed = True
