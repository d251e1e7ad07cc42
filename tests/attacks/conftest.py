"""Fixtures of the attacks' lane: services in the test's own process; time is virtual there anyway."""

from support.in_memory import quick_polls, virtual_time, warnings_only

__all__ = ["quick_polls", "virtual_time", "warnings_only"]
