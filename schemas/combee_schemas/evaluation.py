"""Evaluation: the score of one held-out question, answered with a playbook in the prompt."""

from typing import ClassVar

from pydantic import Field

from combee_schemas.base import Id, LineName, Message, OnErasure, RequestHash, Usage
from combee_schemas.marks import Text

MAX_ANSWER = 2_000


class Evaluation(Message):
    """The score of one answer; asking the same question again costs nothing.

    ``asked`` is a hash of everything that determines the score: answerer and options, the playbook's content, the
    question, its right answer and the scorer. Versions with the same content therefore share their scores.
    """

    type: ClassVar[str] = "evaluation"
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    asked: RequestHash
    playbook: LineName
    version: int = Field(ge=0)
    """First version with this content that was evaluated."""
    question_id: Id
    answered_by: Text = Field("", max_length=300)
    """The answerer, such as ``model openai/gpt-4.1-mini``."""
    right: float = Field(ge=0)
    places: int = Field(1, ge=1)
    """Maximum number of points: one, or one per label."""
    answer: Text = Field("", max_length=MAX_ANSWER)
    trouble: Text = Field("", max_length=300)
    """Reason for a missing answer, which counts as wrong."""
    usage: Usage = Usage()
    cost: float = Field(0.0, ge=0)
    """Cost in currency at the prices of that time."""
    evaluated_at_ms: int = 0
