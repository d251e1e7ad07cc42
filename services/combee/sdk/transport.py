"""What carries messages out and playbooks in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from combee_schemas.playbook import Label, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

Sent = Trace | Reflection
"""What an agent sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where a transport puts what it hears."""

    take: Callable[[str, Playbook | Label | None], None]
    """A record of ``playbooks`` or ``labels`` by its key; None: deleted."""
    current: Callable[[str | None], None]
    """All there was of this playbook at the start has been taken; None: of every playbook."""


class Transport(Protocol):
    """One way to a deployment. Every method runs on the background loop.

    TransientError: try again; PoisonError: this message can never be sent; FatalError: somebody has to act.
    """

    async def send(self, messages: Sequence[Sent]) -> None:
        """Send; all are acknowledged by the log on return. Repeats are harmless: ids are kept."""

    async def follow(self, sink: Sink) -> None:
        """Put every change into ``sink``, for ever; only errors end it."""

    async def watch(self, name: str, label: str) -> None:
        """Learn that somebody asks for this playbook; a transport that hears of all has nothing to do."""

    async def fetch(self, name: str, version: int) -> Playbook | None:
        """Return one version out of the history; None: there is none such."""

    async def close(self) -> None:
        """Disconnect."""
