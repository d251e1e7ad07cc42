"""The judges that a gate may ask; an entry makes a judge."""

from combee_schemas.gate import Judge

PERSON: Judge = "approve"
"""The judge that is a person: their verdicts are the commands ``approve`` and ``reject``."""
JUDGES: dict[Judge, str] = {
    # Answers to held-out questions.
    "evaluate": "combee.assembly.answerers:evaluation_judge",
    # Outcomes of a share of the callers, which the service ``control`` counts.
    "canary": "",
    PERSON: "",
}
"""Judges, in the order in which people see them.

The value is ``MODULE:FUNCTION`` of the asynchronous context manager that yields the judge to the service
``evaluate``; empty: its verdicts come another way."""
