"""Evaluation: one question of a held-out set, answered with a playbook before the answerer, and its score."""

from typing import ClassVar

from pydantic import Field

from combee_schemas.base import Id, LineName, Message, OnErasure, RequestHash, Usage
from combee_schemas.marks import Text

MOST_ANSWER = 2_000


class Evaluation(Message):
    """What an answer was worth. Whoever asks the same again finds it here and pays nothing.

    ``asked`` is a hash of all that the score rests on: who answers and how, the playbook's content, the question,
    its right answer and the scorer. So versions with the same content share their scores.
    """

    type: ClassVar[str] = "evaluation"
    ON_ERASURE: ClassVar[OnErasure] = "dropped"

    asked: RequestHash
    playbook: LineName
    version: int = Field(ge=0)
    """The first version that was asked about with this content."""
    question_id: Id
    answered_by: Text = Field("", max_length=300)
    """Such as ``model openai/gpt-4.1-mini``."""
    right: float = Field(ge=0)
    places: int = Field(1, ge=1)
    """Out of so many: one, or one per label."""
    answer: Text = Field("", max_length=MOST_ANSWER)
    trouble: Text = Field("", max_length=300)
    """Why there is no answer; it counts as wrong."""
    usage: Usage = Usage()
    cost: float = Field(0.0, ge=0)
    """In money, at the prices that held."""
    evaluated_at_ms: int = 0
