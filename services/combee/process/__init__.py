"""Parts of every process: settings, a worker's loop, telemetry, files of secrets."""
