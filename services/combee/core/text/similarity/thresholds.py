"""From where on the embeddings of a model count; pure."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on the embeddings of a model count; models differ in it."""

    meaning: float = 0.98
    """Cosine at or above which two texts are one lesson; the default counts only nearly identical texts, for a model
    that was not measured (``combee doctor --embeddings``)."""


UNMEASURED = Thresholds()
_MEASURED = re.compile(r"(?P<model>.+)@(?P<meaning>\d*\.\d+)")


def model_and_thresholds(embeddings: str) -> tuple[str, Thresholds]:
    """Return an embedding model's name and thresholds, written as MODEL, or MODEL@0.9 once it was measured.

    Raises
    ------
    ValueError
        If no cosine can have the threshold.
    """
    measured = _MEASURED.fullmatch(embeddings.strip())
    if measured is None:
        return embeddings.strip(), UNMEASURED
    meaning = float(measured["meaning"])
    if not 0 < meaning <= 1:
        raise ValueError(f"{measured['meaning']} is no threshold: it is a cosine, above 0 and at most 1.0")
    return measured["model"], Thresholds(meaning=meaning)
