"""Retrieval and summaries against Combee."""
