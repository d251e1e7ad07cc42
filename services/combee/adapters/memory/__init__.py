"""The log in memory: for users' tests and ours. It keeps Kafka's promises or refuses; it never pretends."""

from combee.adapters.memory.log import MemoryLog
from combee_schemas.murmur2 import murmur2

__all__ = ["MemoryLog", "murmur2"]
