"""The low watermark of a partition, with several records open at once: nothing is lost or done twice."""


class Watermark:
    """Computes the offset that may be committed: everything below it is finished."""

    def __init__(self, start: int) -> None:
        self.next = start
        """The first unread offset; after a rebalance open records below it are delivered again."""
        self._open: set[int] = set()
        self._lowest = start

    def begin(self, offset: int) -> bool:
        """Open a record; return False if it is already open or finished."""
        if offset < self.next:
            return False
        self._open.add(offset)
        self.next = offset + 1
        return True

    def pass_to(self, offset: int) -> None:
        """Note that everything below ``offset`` has been returned (gaps without a record count as done)."""
        self.next = max(self.next, offset)

    def done(self, offset: int) -> None:
        """Finish a record."""
        self._open.discard(offset)

    @property
    def low(self) -> int:
        """The next offset to read after a crash; it only rises."""
        self._lowest = max(self._lowest, min(self._open, default=self.next))
        return self._lowest

    @property
    def open(self) -> int:
        """Number of open records."""
        return len(self._open)
