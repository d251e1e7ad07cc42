"""Scoring answers by the rules of their data; nothing a model wrote is ever evaluated."""

from combee.core.formats.ace_protocol import Score
from combee.core.formats.ace_protocol import score as sample_score
from combee_experiments.data.samples import Kind
from combee_sim.family.family import right as family_right

MAX_ANSWER_CHARS = 4_000
"""A longer answer is wrong unread: the longest right one has a few hundred characters."""
NOTHING = Score(right=0, asked=0)


def score(kind: Kind, answer: str, target: str) -> Score:
    """Judge one answer: questions of the family by their exact text, samples as the product does."""
    shown = answer if len(answer) <= MAX_ANSWER_CHARS else ""
    if kind == "family":
        return Score(right=int(family_right(shown, target)), asked=1)
    return sample_score(kind, shown, target)
