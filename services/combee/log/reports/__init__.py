"""Reports as values and texts: the command line, the gateway, the dashboard and ``top`` only render them; pure."""
