"""The judges that a gate may ask: one entry makes a judge."""

from dataclasses import dataclass

from combee_schemas.gate import Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeKind:
    """Where the verdicts of a judge come from."""

    opened_by: str = ""
    """``MODULE:FUNCTION`` that opens it for the service ``evaluate``, as ``answerers:evaluation_judge`` does; empty:
    its verdicts come another way."""


JUDGES: dict[Judge, JudgeKind] = {
    # Answers to held-out questions.
    "evaluate": JudgeKind(opened_by="combee.assembly.answerers:evaluation_judge"),
    # Outcomes of a share of the callers, which control counts.
    "canary": JudgeKind(),
    # A person, who gives commands.
    "approve": JudgeKind(),
}
"""In the order in which they are listed."""
