"""What every process has: its settings, the loop of a worker, telemetry, files of secrets."""
