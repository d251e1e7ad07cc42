"""The log in memory: for users' tests and ours. It keeps Kafka's guarantees or raises."""

from combee.adapters.memory.log import MemoryLog

__all__ = ["MemoryLog"]
