"""The dashboard: live status and lessons of a deployment in a browser, served by the gateway."""

from combee.dashboard.mount import mount

__all__ = ["mount"]
