"""Where a user's jars and a user's topics live (platformdirs)."""

from pathlib import Path

from platformdirs import user_cache_path, user_data_path

VERSION = "4.3.1"


def cache_dir() -> Path:
    """Return the user's cache folder for the broker's jars."""
    return user_cache_path("combee") / f"kafka-{VERSION}"


def home_dir() -> Path:
    """Return the user's one data directory, which all commands share."""
    return user_data_path("combee") / "kafka"
