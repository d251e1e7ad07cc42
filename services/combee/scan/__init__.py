"""Groups become partials, level by level, and one update."""
