"""Ports at whose every write a process can be made to die, for fault tests; nothing of it runs unless asked for."""

from combee.adapters.failpoints.fuse import POINTS, ExitFuse, Fuse
from combee.adapters.failpoints.log import MortalLog
from combee.adapters.failpoints.model import MortalModel

__all__ = ["POINTS", "ExitFuse", "Fuse", "MortalLog", "MortalModel"]
