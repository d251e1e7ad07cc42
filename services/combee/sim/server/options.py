"""What can be set on the stand-in server."""

from dataclasses import dataclass, field
from pathlib import Path

from combee.sim.server.faults import FaultRates
from combee.sim.server.latency import Latency

HUGE_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """Seed, latency, faults, call log and address of a stand-in server."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    seed: int = 0
    latency: Latency = field(default_factory=Latency)
    faults: FaultRates = field(default_factory=FaultRates)
    down_for_s: float = 0.0
    """From its start the server answers 503 for this long."""
    retry_after_s: float = 1.0
    hang_s: float = 600.0
    huge_bytes: int = HUGE_BYTES
    context_tokens: int | None = None
    """Longer prompts are refused as a real server refuses them; None reads anything."""
    call_log: Path | None = None
