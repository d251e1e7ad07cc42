"""Where parts meet: services from ports and settings, ports from settings, a process from both."""
