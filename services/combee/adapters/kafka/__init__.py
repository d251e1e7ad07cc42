"""The log on Apache Kafka (aiokafka)."""

from combee.adapters.kafka.admin import KafkaAdmin, is_ready
from combee.adapters.kafka.log import KafkaLog
from combee.adapters.kafka.reachability import Reachability

__all__ = ["KafkaAdmin", "KafkaLog", "Reachability", "is_ready"]
