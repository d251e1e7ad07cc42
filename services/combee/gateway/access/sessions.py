"""Sessions in which browsers use the dashboard; each begins with a one-time link. Both are stored as hashes."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from combee.gateway.access.keys import Caller

LINK_MS = 15 * 60_000
SESSION_MS = 12 * 3_600_000
MAX_SESSIONS = 1_000
COOKIE = "combee-session"


@dataclass(frozen=True, slots=True)
class _Kept:
    caller: Caller
    until_ms: int


class Sessions:
    """Links and sessions of one gateway, kept only in memory: they end with its process."""

    def __init__(self) -> None:
        self._links: dict[bytes, _Kept] = {}
        self._sessions: dict[bytes, _Kept] = {}

    def link(self, caller: Caller, now_ms: int) -> str:
        """Return a token that opens one session of a caller, within ``LINK_MS``."""
        return _added(self._links, _Kept(caller, now_ms + LINK_MS))

    def open(self, token: str, now_ms: int) -> str | None:
        """Return a new session for a token and invalidate the token; None for an invalid token."""
        kept = self._links.pop(_digest(token), None)
        if kept is None or now_ms >= kept.until_ms:
            return None
        return _added(self._sessions, _Kept(kept.caller, now_ms + SESSION_MS))

    def of(self, cookies: Mapping[str, str], now_ms: int) -> Caller | None:
        """Return the caller of a browser's session, None if unknown or expired; its key is not checked here."""
        kept = self._sessions.get(_digest(cookies.get(COOKIE, "")))
        return kept.caller if kept is not None and now_ms < kept.until_ms else None


def _added(to: dict[bytes, _Kept], kept: _Kept) -> str:
    secret = secrets.token_urlsafe(32)
    to[_digest(secret)] = kept
    while len(to) > MAX_SESSIONS:
        del to[next(iter(to))]
    return secret


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()
