"""Failures of a model's call: retry it, or change its form."""

from combee.adapters.ports import PoisonError, TransientError


class CallFailedError(TransientError):
    """A call without a reply, to be retried: soon, or slowly while the cause is ``permanent``."""

    def __init__(
        self,
        text: str,
        *,
        retry_after_s: float | None = None,
        permanent: bool = False,
        unreachable: bool = False,
    ) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.permanent = permanent
        self.unreachable = unreachable
        """Nobody listens at the address."""


class CallRefusedError(PoisonError):
    """The server refuses this request; another form of it may be accepted."""

    def __init__(self, text: str, *, param: str = "") -> None:
        super().__init__(text)
        self.about = f"{param} {text}".lower()
