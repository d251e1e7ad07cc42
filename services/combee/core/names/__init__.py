"""Names: ids, sources and tenants; pure."""
