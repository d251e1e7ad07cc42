"""The origin of a branch, and in what its settings differ from its playbook's; pure."""

from typing import Any

from combee_schemas.base import Value
from combee_schemas.plan import Branch
from combee_schemas.playbook import Playbook


class BranchReport(Value):
    """A branch's origin, and its differences from its playbook's last batch."""

    of: str
    version: int
    settings: dict[str, Any]
    instead_of: dict[str, Any]
    """The playbook's last settings where the branch differs; None: unknown."""

    @property
    def text(self) -> str:
        """The same in words."""
        parts = [
            f"{name} {_value(own)}"
            + ("" if (other := self.instead_of.get(name)) is None else f" ({_value(other)})")
            for name, own in self.settings.items()
        ]
        return f"version {self.version}: {', '.join(parts) or 'the same settings'}"


def branch_report(branch: Branch | None, playbook: Playbook | None = None) -> BranchReport | None:
    """Return the report on a branch of a playbook; None: no branch."""
    if branch is None:
        return None
    own = branch.settings.own()
    return BranchReport(
        of=branch.of, version=branch.version, settings=own, instead_of=_instead_of(own, playbook)
    )


def branch_text(branch: BranchReport | None) -> str:
    """Return the report on a branch in words; empty: it is no branch."""
    return branch.text if branch else ""


def _instead_of(own: dict[str, Any], playbook: Playbook | None) -> dict[str, Any]:
    plan = playbook.batch.plan if playbook and playbook.batch else None
    if plan is None:
        return dict.fromkeys(own)
    return {
        name: plan.batch_size or None if name == "batch_size" else getattr(plan.settings, name)
        for name in own
    }


def _value(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
