"""OpenTelemetry: spans and metrics out by OTLP/HTTP. Nothing here is loaded until it is asked for."""
