"""Kafka's default partitioner hash, so that a key gets the same partition here as in Kafka's clients."""

from functools import lru_cache

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of ``data``, unsigned, with Kafka's seed."""
    mixed = SEED ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        mixed = mixed * MULTIPLIER & MASK ^ word
    if rest := data[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    mixed = (mixed ^ mixed >> 13) * MULTIPLIER & MASK
    return mixed ^ mixed >> 15


@lru_cache(maxsize=10_000)  # pure Python is slow, and an archive asks for every record
def hashed(key: bytes) -> int:
    """Return the hash whose remainder modulo the partition count is the key's partition in Kafka's clients."""
    return murmur2(key) & 0x7FFFFFFF
