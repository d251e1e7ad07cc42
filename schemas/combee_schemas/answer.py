"""Answer: a model's reply to one request, kept so that a replay need not pay for it again."""

from typing import ClassVar

from pydantic import Field

from combee_schemas.base import Message, OnErasure, RequestHash, Usage
from combee_schemas.marks import Text


class Answer(Message):
    """A usable reply, under the hash of the request that it answers."""

    type: ClassVar[str] = "answer"
    PLAYBOOK: ClassVar[str] = ""
    ON_ERASURE: ClassVar[OnErasure] = "unneeded"

    request: RequestHash
    """SHA-256 of the whole request: model, messages, schema and options."""
    reply: Text
    """The parsed reply, as JSON."""
    usage: Usage = Usage()
    answered_at_ms: int = Field(0, ge=0)
