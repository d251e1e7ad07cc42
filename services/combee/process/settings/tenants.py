"""Settings of tenants: their limits."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from combee.core.names.tenants import EVERY, Limits, tenant_of
from combee.process.settings.group import SettingsGroup


def _is_tenant(name: str) -> str:
    if name != EVERY and (not name or tenant_of(name) != name):
        raise ValueError(
            "a tenant is the part of a playbook's name before the first '/', or '*' for all others"
        )
    return name


class Tenant(BaseModel):
    """The limits of one tenant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reflections_per_second: float | None = Field(None, gt=0, allow_inf_nan=False)
    daily_tokens: int | None = Field(None, ge=1)
    daily_cost: float | None = Field(None, gt=0, allow_inf_nan=False)


class TenantSettings(SettingsGroup):
    """Limits of tenants, which are name spaces of playbooks within one deployment."""

    tenants: dict[Annotated[str, AfterValidator(_is_tenant)], Tenant] = Field(
        default_factory=dict,
        description="limits per tenant, in `combee.toml`: `[tenants.support]` with `reflections_per_second`,"
        ' `daily_tokens` and `daily_cost`; `[tenants."*"]` for each of the others',
    )

    def limits(self) -> Mapping[str, Limits]:
        """Return the limits by tenant."""
        return {name: Limits(**tenant.model_dump()) for name, tenant in self.tenants.items()}
