"""How long to wait before a failed call is tried again, and whether the model answers at all."""

from dataclasses import dataclass

import structlog

from combee.adapters.openai.faults import CallFailedError

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Waits between attempts (s); without ``give_up_after_s`` a call is tried for ever."""

    first_wait_s: float
    max_wait_s: float
    permanent_wait_s: float
    give_up_after_s: float | None


class Waiting:
    """The waits of one call, in the form stamina asks for."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._failing_since_s: float | None = None
        self._failing_for_s = 0.0

    def failed_at(self, now_s: float) -> None:
        """Note a failure; the patience is counted from the first."""
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        self._failing_for_s = now_s - self._failing_since_s

    def __call__(self, error: Exception) -> bool | float:
        """Return the wait in seconds, True for the usual back-off, False for no further attempt."""
        if not isinstance(error, CallFailedError):
            return False
        wait_s = self._wished_s(error)
        limit_s = self._patience.give_up_after_s
        if limit_s is not None and self._failing_for_s + (wait_s or 0.0) >= limit_s:
            return False
        return True if wait_s is None else wait_s

    def _wished_s(self, error: CallFailedError) -> float | None:
        if error.permanent:
            return self._patience.permanent_wait_s
        if error.retry_after_s is None:
            return None
        # "Retry-After: 0" from a server that never recovers must not become a busy loop.
        return max(error.retry_after_s, self._patience.first_wait_s)


class Health:
    """Whether calls are answered; the text of the trouble while they are not."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.permanent = False

    def failed(self, error: CallFailedError) -> None:
        """Note a failed call; said aloud once per trouble."""
        text = str(error)
        if text != self.trouble:
            log = _log.error if error.permanent else _log.warning
            log("the model does not answer", reason=text, permanent=error.permanent)
        self.trouble, self.permanent = text, error.permanent

    def answered(self) -> None:
        """Note that the server answers."""
        if self.trouble is not None:
            _log.info("the model answers again")
        self.trouble, self.permanent = None, False
