"""The scan service: groups become partials, level by level, and at last one update."""
