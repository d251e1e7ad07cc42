"""Fixtures of the services' lane."""

from support.in_memory import every_level, quick_polls, virtual_time, warnings_only

__all__ = ["every_level", "quick_polls", "virtual_time", "warnings_only"]
