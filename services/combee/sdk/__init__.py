"""The SDK: agents publish what they learned and read what all of them learned."""

from typing import TYPE_CHECKING, Any

from combee.adapters.ports import CombeeError, FatalError
from combee.sdk.client import AsyncClient, Client
from combee.sdk.learning import Learning, Run, learning
from combee.sdk.openai.wrapping import wrap_openai
from combee.sdk.publishing import Delivery
from combee.sdk.redaction import Redactor
from combee.sdk.transport import Transport
from combee.sdk.view import PlaybookView
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.trace import Trace

if TYPE_CHECKING:
    from combee.sdk.memory import MemoryTransport

__all__ = [
    "AsyncClient",
    "BulletTag",
    "Client",
    "CombeeError",
    "Delivery",
    "FatalError",
    "Learning",
    "MemoryTransport",
    "PlaybookView",
    "Redactor",
    "Reflection",
    "Run",
    "Trace",
    "Transport",
    "learning",
    "wrap_openai",
]


def __getattr__(name: str) -> Any:
    """Load names that only tests use on demand."""
    if name != "MemoryTransport":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from combee.sdk.memory import MemoryTransport  # noqa: PLC0415 - see above

    return MemoryTransport
