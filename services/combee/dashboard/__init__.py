"""The dashboard: what a deployment does and has learned, live in a browser; served by the gateway."""

from combee.dashboard.mount import mount

__all__ = ["mount"]
