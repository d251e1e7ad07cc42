"""Fixtures of the unit lane."""

from hypothesis import settings

from support.in_memory import every_level, quick_polls, virtual_time, warnings_only

__all__ = ["every_level", "quick_polls", "virtual_time", "warnings_only"]

# A busy machine must not decide a test, and the lane has to stay short.
settings.register_profile("unit", deadline=None, max_examples=20)
settings.load_profile("unit")
