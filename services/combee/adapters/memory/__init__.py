"""The log in memory: for users' tests and ours. It keeps Kafka's guarantees or raises."""

from combee.adapters.memory.log import MemoryLog
from combee_schemas.murmur2 import murmur2

__all__ = ["MemoryLog", "murmur2"]
