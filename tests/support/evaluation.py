"""A function that scores playbooks, as COMBEE_EVAL_FUNCTION names one."""

from collections.abc import Mapping


def counted(playbook: str, _question: Mapping[str, str]) -> float:
    return min(1.0, len(playbook.splitlines()) / 100)
