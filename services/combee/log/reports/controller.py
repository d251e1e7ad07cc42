"""The controller's decision about a batch size, with its measured delays and their fit; pure."""

from collections.abc import Mapping
from typing import Any

from combee.core.batching.sizing.reasons import STARTING
from combee_schemas.control import BatchSize
from combee_schemas.plan import Branch


def sizing_row(decided: BatchSize | None) -> dict[str, Any] | None:
    """Return the field ``sizing`` of one line in ``status --json``; None: nobody has decided yet."""
    return decided.model_dump(include={"policy", "phase", "reason", "decided_at_ms"}) if decided else None


def size_text(decision: Mapping[str, Any]) -> str:
    """Return a size and how it was chosen, in few words."""
    return f"batches of {decision['batch_size']} ({decision['policy']}, {decision['phase']})"


def why_text(branch: Branch | None, reason: str) -> str:
    """Return the reason for a line's batch size; ``reason``: the controller's, empty: it gave none."""
    is_own = branch is not None and branch.settings.batch_size is not None
    return "the branch's own" if is_own else reason or STARTING
