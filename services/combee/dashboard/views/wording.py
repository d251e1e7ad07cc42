"""How times, shares, names and addresses are written, and how texts are searched; pure."""

from collections.abc import Callable
from urllib.parse import quote, urlencode

from combee.adapters import clock
from combee.core.playbook import retention

Matches = Callable[[str], bool]


def moment(at_ms: int | None) -> str:
    """Return a time as everywhere, or a dash."""
    return clock.moment(at_ms) or "–"


def address(playbook: str, version: str | float | None = None, entry: str = "") -> str:
    """Return where a playbook, a version or an entry of it is shown; whatever is in a name stays part of it."""
    parts = {"name": playbook, "version": "" if version is None else str(version), "entry": entry}
    query = urlencode({key: text for key, text in parts.items() if text}, quote_via=quote, safe="/")
    return f"/playbook?{query}"


def percent(share: float | None) -> str:
    """Return a share as everywhere, or a dash."""
    return retention.percent(share) or "–"


def title(section: str) -> str:
    """Return a section's name as a heading; ACE shouts it."""
    return section.capitalize() if section.isupper() else section


def matching(text: str) -> Matches:
    """Return what tells whether a text in small letters has all words of ``text``, in any order."""
    words = text.casefold().split()
    return lambda content: all(word in content for word in words)


def search_address(text: str) -> str:
    """Return where a search is shown."""
    return f"/search?{urlencode({'text': text})}" if text else "/search"
