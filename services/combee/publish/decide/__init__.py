"""Publish's decisions: pure functions of a record, the state of its partition, and further reads."""
