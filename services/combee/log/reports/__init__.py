"""Reports that the command line, the gateway, the dashboard and ``top`` render alike; pure."""
