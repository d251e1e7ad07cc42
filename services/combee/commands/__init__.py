"""What people may ask of a deployment: decided, sent, and awaited; for the command line, the gateway, the dashboard."""
