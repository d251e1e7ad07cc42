"""The gate: which version agents read, and the judges of the next one."""
