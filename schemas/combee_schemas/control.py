"""BatchSize: how many original reflections a batch of a playbook takes, and why."""

from typing import ClassVar

from pydantic import Field

from combee_schemas.base import Message, PlaybookName


class BatchSize(Message):
    """The controller's decision; key: playbook."""

    type: ClassVar[str] = "batch-size"

    playbook: PlaybookName
    batch_size: int = Field(ge=1)
    reason: str = ""
    numbers: dict[str, float] = Field(default_factory=dict)
    decided_at_ms: int = 0
