"""Settings of playbooks: how large one may grow, what its model calls cost, and the caps."""

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from combee.core.playbook.spend import SpendPolicy
from combee.process.settings.group import TOML_FILE, Group, SettingsError

MOST_PRICE = 1e6


class PlaybookSettings(Group):
    """How large a playbook may grow."""

    playbook_tokens: int = Field(
        16_000,
        ge=100,
        le=24_000,
        description="token budget of a playbook's entries: what agents' prompts have room for (tokens)",
    )


class Price(BaseModel):
    """What a model's tokens cost, per million."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    price_in: float = Field(alias="in", ge=0, le=MOST_PRICE)
    price_out: float = Field(alias="out", ge=0, le=MOST_PRICE)
    price_cached_in: float | None = Field(None, alias="cached_in", ge=0, le=MOST_PRICE)


class SpendSettings(Group):
    """What model calls cost, and how much one playbook may spend per day (UTC); reaching a cap pauses it."""

    daily_tokens: int | None = Field(None, ge=1, description="cap per playbook and day (tokens)")
    daily_cost: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="cap per playbook and day (money)"
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description='what a million tokens cost, in `combee.toml`: `[prices."openai/gpt-4.1-mini"]` with `in`,'
        " `out` and, if it differs, `cached_in` (from the prompt cache); without it money is not counted",
    )

    def policy(self, model: str | None) -> SpendPolicy:
        """Return caps and prices for a model.

        Raises
        ------
        SettingsError
            If money is capped and the model has no price.
        """
        price = self.prices.get(model or "")
        if price is None:
            if self.daily_cost is not None:
                raise SettingsError(
                    f"COMBEE_DAILY_COST caps money, and {model or 'the model'} has no price: give"
                    f' [prices."{model}"] with in and out (per million tokens) in {TOML_FILE}'
                )
            return self.caps()
        return replace(self.caps(), **price.model_dump())

    def caps(self) -> SpendPolicy:
        """Return the caps alone, for whoever spends nothing."""
        return SpendPolicy(daily_tokens=self.daily_tokens, daily_cost=self.daily_cost)
