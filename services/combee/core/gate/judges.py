"""The judges that a gate may ask; a new judge is a new entry."""

from combee_schemas.gate import Judge

PERSON: Judge = "approve"
"""The judge that stands for people: their verdicts are the commands ``approve`` and ``reject``."""
JUDGES: dict[Judge, str] = {
    # Answers to held-out questions.
    "evaluate": "combee.assembly.answerers:evaluation_judge",
    # Outcomes of a share of the callers, which the service ``control`` counts.
    "canary": "",
    PERSON: "",
}
"""Judges, in the order in which people see them.

The value is ``MODULE:FUNCTION`` of the asynchronous context manager that yields the judge to the service
``evaluate``. It is empty where commands or the service ``control`` give the verdicts."""
