"""The low watermark of a partition: several records open at once, nothing lost, nothing done twice."""


class Watermark:
    """Which offset may be committed: everything below it is finished."""

    def __init__(self, start: int) -> None:
        self.next = start
        """The first offset never seen; a rebalance delivers open records again, they are below it."""
        self._open: set[int] = set()
        self._lowest = start

    def begin(self, offset: int) -> bool:
        """Open a record; False if it is open or finished already."""
        if offset < self.next:
            return False
        self._open.add(offset)
        self.next = offset + 1
        return True

    def pass_to(self, offset: int) -> None:
        """Take note that everything below ``offset`` has been returned (what is no record counts as done)."""
        self.next = max(self.next, offset)

    def done(self, offset: int) -> None:
        """Finish a record."""
        self._open.discard(offset)

    @property
    def low(self) -> int:
        """The next offset to read after a crash; rises only."""
        self._lowest = max(self._lowest, min(self._open, default=self.next))
        return self._lowest

    @property
    def open(self) -> int:
        """How many records are open."""
        return len(self._open)
