"""The log on Apache Kafka (aiokafka)."""

from combee.adapters.kafka.admin import KafkaAdmin, Presence, is_ready
from combee.adapters.kafka.log import KafkaLog

__all__ = ["KafkaAdmin", "KafkaLog", "Presence", "is_ready"]
