"""How times, shares and addresses are written; pure."""

from urllib.parse import quote

from combee import clock
from combee.core.playbook import retention


def moment(at_ms: int | None) -> str:
    """Return a time as everywhere, or a dash."""
    return clock.moment(at_ms) or "–"


def address(playbook: str, version: str | float | None = None) -> str:
    """Return where a playbook is shown; whatever is in its name stays part of the name."""
    at = "" if version is None else f"&version={version}"
    return f"/playbook?name={quote(playbook)}{at}"


def percent(share: float | None) -> str:
    """Return a share as everywhere, or a dash."""
    return retention.percent(share) or "–"
