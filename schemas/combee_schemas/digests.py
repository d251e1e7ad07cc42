"""Stable hashes: the same in every process, version and language."""

from hashlib import blake2b

DIGEST_BYTES = 12


def digest(*parts: str | int) -> bytes:
    """Return 12 bytes that depend on all parts and on the boundaries between them."""
    encoded = [str(part).encode() for part in parts]
    framed = b"".join(len(raw).to_bytes(8, "big") + raw for raw in encoded)
    return blake2b(framed, digest_size=DIGEST_BYTES).digest()


def spread(text: str, buckets: int) -> int:
    """Return a stable bucket for ``text``, 0 ≤ bucket < ``buckets``."""
    return int.from_bytes(digest("spread", text)[:8], "big") % buckets
