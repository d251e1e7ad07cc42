"""Stable hashes: the same in every process, version and language."""

from hashlib import blake2b

DIGEST_BYTES = 12


def digest(*parts: str | int) -> bytes:
    """Return 12 bytes that depend on all parts and on where one ends and the next begins."""
    hasher = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        raw = str(part).encode()
        hasher.update(len(raw).to_bytes(8, "big"))
        hasher.update(raw)
    return hasher.digest()


def spread(text: str, buckets: int) -> int:
    """Return a stable bucket for ``text``, 0 ≤ bucket < ``buckets``."""
    return int.from_bytes(digest("spread", text)[:8], "big") % buckets
