"""The composition of the system: ports from settings, services from ports and settings, processes from services."""
