"""Combee: parallel prompt learning for agents on Apache Kafka."""
