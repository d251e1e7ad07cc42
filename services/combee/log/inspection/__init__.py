"""What the topics say: audit, lineage, backlog, dead letters, the live picture."""
