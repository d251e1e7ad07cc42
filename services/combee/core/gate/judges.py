"""The judges that a gate may ask; a registry entry makes a judge."""

from dataclasses import dataclass

from combee_schemas.gate import Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeKind:
    """The origin of a judge's verdicts."""

    opened_by: str = ""
    """``MODULE:FUNCTION`` of the asynchronous context manager that yields the judge to the service ``evaluate``;
    empty: its verdicts come another way."""


JUDGES: dict[Judge, JudgeKind] = {
    # Answers to held-out questions.
    "evaluate": JudgeKind(opened_by="combee.assembly.answerers:evaluation_judge"),
    # Outcomes of a share of the callers, counted by control.
    "canary": JudgeKind(),
    # A person's commands.
    "approve": JudgeKind(),
}
"""Judges, in the order in which people see them."""
