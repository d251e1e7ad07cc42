"""Reading the topics: audit, lineage, backlog, dead letters, the live picture."""
