"""The log on Apache Kafka (aiokafka)."""

from combee.adapters.kafka.admin import KafkaAdmin, is_ready
from combee.adapters.kafka.log import KafkaLog
from combee.adapters.kafka.presence import Presence

__all__ = ["KafkaAdmin", "KafkaLog", "Presence", "is_ready"]
