"""The ledger: checks from the topics whether every promise was kept; pure."""

from combee.core.log.ledger.account import Ledger
from combee.core.log.ledger.checkpoint import (
    NOTHING,
    Checkpoint,
    CheckpointError,
    Evidence,
    Offsets,
    sealed,
    unsealed,
)
from combee.core.log.ledger.next_checkpoint import checkpoint
from combee.core.log.ledger.report import Calls, Horizon, LedgerReport

__all__ = [
    "NOTHING",
    "Calls",
    "Checkpoint",
    "CheckpointError",
    "Evidence",
    "Horizon",
    "Ledger",
    "LedgerReport",
    "Offsets",
    "checkpoint",
    "sealed",
    "unsealed",
]
