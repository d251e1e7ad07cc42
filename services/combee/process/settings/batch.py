"""Settings of batches."""

from typing import Annotated, ClassVar

from pydantic import Field

from combee.core.gate.policy import EVERYBODY, TrustPolicy
from combee.process.settings.group import SettingsGroup
from combee_schemas.plan import BatchOptions, Colluders, ReflectionsPerBatch, Trust

StartSize = Annotated[
    ReflectionsPerBatch,
    Field(
        description="reflections per batch; fixed if set without COMBEE_BATCH_POLICY, otherwise the"
        " controller's start value"
    ),
]
InFlight = Annotated[
    int,
    Field(
        ge=1,
        le=16,
        description="maximum number of unpublished batches per playbook; raise it when windows are full and"
        " batches wait",
    ),
]


class BatchSettings(BatchOptions, SettingsGroup):
    """When windows close and how a batch is cut (paper defaults: p = 2, k = ⌊√n⌋)."""

    ALSO_IN_FILES: ClassVar = ("salt",)  # readers of the log may know it, because manifests hold it

    batch_size: StartSize = 40
    reflect_entry_tokens: int = Field(
        2_000,
        ge=0,
        description="maximum size of the entries in a reflector's prompt, nearest to the task first; lower"
        " it for a small context (tokens)",
    )
    reflect_trace_tokens: int = Field(
        32_000,
        ge=500,
        description="maximum size of a trace in a reflector's prompt, cut in the middle; lower it for a"
        " small context (tokens)",
    )
    probation: int = Field(
        1,
        ge=1,
        le=20,
        description="number of reflections that must support an entry before agents see it; 1: off",
    )
    trust: Trust | dict[str, Trust] = Field(
        "team",
        description="posture towards sources: `team`, `public` (unknown producers) or `lab` (everything counts at"
        ' once); per playbook in `combee.toml`: `[trust]` with `"community/*" = "public"`, the longest matching'
        " pattern wins",
    )
    colluders: Colluders = Field(
        3,
        description="public: proven sources that may collude; one more must agree before agents see a lesson",
    )
    consolidate_above: float = Field(
        0,
        ge=0,
        le=1,
        description="share of the token budget above which a playbook is consolidated automatically, again"
        " after each further tenth; 0: never",
    )
    max_wait_s: float = Field(
        30,
        gt=0,
        description="maximum wait before an unfilled window closes: raise it for fuller batches, lower it"
        " for newer lessons (s)",
    )
    max_inflight_batches: InFlight = 1
    batch_timeout_s: float = Field(
        900,
        gt=0,
        description="a batch without a version is emitted again after this time; keep it longer than all its"
        " model calls take (s)",
    )

    @property
    def postures(self) -> TrustPolicy:
        """The posture of every playbook."""
        given = self.trust if isinstance(self.trust, dict) else {EVERYBODY: self.trust}
        return TrustPolicy(by_pattern=given)
