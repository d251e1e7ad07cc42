"""The counting rules: four ways to count what a call reads, each with the law fitted under it."""

from collections.abc import Mapping

from combee_sim.law.law import LAW, Law, exact_text, lessons_only, without_playbook

IN_FORCE = "in_steps"
RULES: Mapping[str, Law] = {
    IN_FORCE: LAW,
    "exact_text": Law(half_tokens=1_472.0, steepness=0.883, count=exact_text),
    "without_playbook": Law(half_tokens=399.0, steepness=0.554, count=without_playbook),
    "lessons_only": Law(half_tokens=1_145.0, steepness=2.058, count=lessons_only),
}
"""Constants found by benchmarks/fit_overload.py (--sensitivity), on the same row as those in force. All four
reproduce that row; docs/design/simulation.md describes the consequences of the choice."""


def parse_law(name: str) -> Law:
    """Return the law of a counting rule.

    Raises
    ------
    ValueError
        If there is no such rule.
    """
    if name not in RULES:
        raise ValueError(f"law {name!r}: there are {', '.join(RULES)}")
    return RULES[name]
