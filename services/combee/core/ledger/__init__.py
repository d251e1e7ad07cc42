"""The ledger: from what the topics hold, whether every promise was kept; pure."""

from combee.core.ledger.account import Ledger
from combee.core.ledger.report import Horizon, LedgerReport

__all__ = ["Horizon", "Ledger", "LedgerReport"]
