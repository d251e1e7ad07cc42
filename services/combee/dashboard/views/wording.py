"""Formatting of times, shares, names and addresses, and matching of texts; pure."""

from collections.abc import Callable
from urllib.parse import quote, urlencode

from combee.adapters import clock
from combee.core.playbook import retention

Matches = Callable[[str], bool]


def moment(at_ms: int | None) -> str:
    """Return a time in the usual format, or a dash."""
    return clock.moment(at_ms) or "–"


def address(
    playbook: str, version: str | float | None = None, entry: str = "", *, only_changed: bool = False
) -> str:
    """Return the page of a playbook, a version (or what it changed) or an entry; names are escaped."""
    parts = {"name": playbook, "version": "" if version is None else str(version), "entry": entry}
    parts["changed"] = "yes" if only_changed else ""
    query = urlencode({key: text for key, text in parts.items() if text}, quote_via=quote, safe="/")
    return f"/playbook?{query}"


def percent(share: float | None) -> str:
    """Return a share in per cent, or a dash."""
    return retention.percent(share) or "–"


def title(section: str) -> str:
    """Return a section's name as a heading; ACE writes it in capitals."""
    return section.capitalize() if section.isupper() else section


def matching(text: str) -> Matches:
    """Return a predicate: whether a lower-case text has all words of ``text``, in any order."""
    words = text.casefold().split()
    return lambda content: all(word in content for word in words)


def search_address(text: str) -> str:
    """Return the address of a search."""
    return f"/search?{urlencode({'text': text})}" if text else "/search"
