"""The judges that a gate may ask, by name."""

from combee_schemas.gate import Judge

PERSON: Judge = "approve"
"""The judge that is a person: their verdicts are the commands ``approve`` and ``reject``."""
JUDGES: tuple[Judge, ...] = ("evaluate", "canary", PERSON)
"""Judges, in the order in which people see them.

The verdicts of ``evaluate`` come from answers to held-out questions, those of ``canary`` from the outcomes of a share
of the callers, which the service ``control`` counts."""
