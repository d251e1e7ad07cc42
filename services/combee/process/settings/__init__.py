"""Settings, one module per group."""
