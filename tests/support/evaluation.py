"""Functions that score playbooks, as COMBEE_EVAL_FUNCTION names them."""

from collections.abc import Mapping


def counted(playbook: str, _question: Mapping[str, str]) -> float:
    return min(1.0, len(playbook.splitlines()) / 100)


def shorter_is_better(playbook: str, _question: Mapping[str, str]) -> float:
    return float(len(playbook.splitlines()) < 30)
