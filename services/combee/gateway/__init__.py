"""The gateway: HTTP and server-sent events for agents in any language, and for the dashboard."""
