"""The judge *evaluate*: compares a candidate with production on the same held-out questions; pure."""

from collections.abc import Mapping

from combee.core.evaluation.intervals import paired, share
from combee.core.evaluation.scoring import Points
from combee.core.gate.gate import Gate
from combee_schemas.gate import Verdict


def verdict(
    gate: Gate,
    candidate: Mapping[str, Points],
    production: Mapping[str, Points],
    *,
    margin: float,
    judged_by: str,
    now_ms: int,
) -> Verdict:
    """Return the verdict of the scores on a gate's candidate.

    It is rejected if it is worse with 95 % confidence, or lower by more than ``margin``, whatever the confidence:
    there will be no further questions.

    Raises
    ------
    ValueError
        If there is no candidate.
    """
    if gate.candidate is None:
        raise ValueError("there is no candidate to judge")
    difference, ours, theirs = paired(candidate, production), share(candidate), share(production)
    is_worse, is_lower = difference.high < 0, difference.mean < -margin
    word = "worse (95 %)" if is_worse else f"lower by more than {margin:g}" if is_lower else "not worse"
    return Verdict(
        playbook=gate.candidate.playbook,
        candidate=gate.candidate.version,
        production=gate.production.version,
        judge="evaluate",
        accepts=not (is_worse or is_lower),
        reason=f"{word}: {difference} on {difference.n} questions",
        figures={
            "n": difference.n,
            "candidate": round(ours.mean, 6),
            "production": round(theirs.mean, 6),
            "difference": round(difference.mean, 6),
            "low": round(difference.low, 6),
            "high": round(difference.high, 6),
        },
        judged_by=judged_by[:300],
        judged_at_ms=now_ms,
    )
