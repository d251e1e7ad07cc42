"""Deterministic names: every id is a hash of what it names, so a repeat has the same id."""

from hashlib import blake2b

ID_BYTES = 12


def digest(*parts: str | int) -> bytes:
    """Return 12 bytes that depend on all parts and on where one ends and the next begins."""
    hasher = blake2b(digest_size=ID_BYTES)
    for part in parts:
        raw = str(part).encode()
        hasher.update(len(raw).to_bytes(8, "big"))
        hasher.update(raw)
    return hasher.digest()


def batch_id(playbook: str, sequence: int) -> str:
    """Return the id of a playbook's ``sequence``-th batch."""
    return "b-" + digest("batch", playbook, sequence).hex()


def node_id(batch: str, level: int, index: int) -> str:
    """Return the id of one node of a batch's tree."""
    return "n-" + digest("node", batch, level, index).hex()


def reflection_id(trace_id: str) -> str:
    """Return the id of the reflection that ``reflect`` derives from a trace."""
    return "r-" + digest("reflection", trace_id).hex()


def content_id(kind: str, *parts: str) -> str:
    """Return an id for input that came without one: the same content has the same id."""
    return f"{kind}-" + digest(kind, *parts).hex()


def batch_seed(playbook: str, sequence: int, member_ids: tuple[str, ...]) -> int:
    """Return the seed that shuffles a batch: 63 bits, fixed by its content."""
    return int.from_bytes(digest("seed", playbook, sequence, *member_ids)[:8], "big") >> 1


def spread(text: str, buckets: int) -> int:
    """Return a stable bucket for ``text``, 0 ≤ bucket < ``buckets``."""
    return int.from_bytes(digest("spread", text)[:8], "big") % buckets
