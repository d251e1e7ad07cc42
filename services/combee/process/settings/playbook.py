"""Settings of playbooks: their maximum size, the price of model calls, and caps."""

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from combee.core.playbook.spend import SpendPolicy
from combee.process.settings.group import TOML_FILE, SettingsError, SettingsGroup
from combee_schemas.playbook import MAX_BUDGET_TOKENS

MAX_PRICE = 1e6


class PlaybookSettings(SettingsGroup):
    """Maximum size of a playbook."""

    playbook_tokens: int = Field(
        16_000,
        ge=100,
        le=MAX_BUDGET_TOKENS,
        description="maximum size of a playbook's entries: the room for them in agents' prompts (tokens)",
    )


class Price(BaseModel):
    """Price of a model's tokens, per million."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    price_in: float = Field(alias="in", ge=0, le=MAX_PRICE)
    price_out: float = Field(alias="out", ge=0, le=MAX_PRICE)
    price_cached_in: float | None = Field(None, alias="cached_in", ge=0, le=MAX_PRICE)


class SpendSettings(SettingsGroup):
    """Prices of model calls, and caps per playbook and day (UTC); a playbook that reaches a cap is paused."""

    daily_tokens: int | None = Field(None, ge=1, description="cap per playbook and day (tokens)")
    daily_cost: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="cap per playbook and day (money)"
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description='price per million tokens, in `combee.toml`: `[prices."openai/gpt-4.1-mini"]` with `in`,'
        " `out` and, if it differs, `cached_in` (from the prompt cache); without a price money is not counted."
        " With a lower `cached_in` a batch asks its first group before the others, so that they find it cached.",
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

    def has_cheaper_cache(self, model: str | None) -> bool:
        """Return whether a model's tokens cost less from the prompt cache."""
        price = self.prices.get(model or "")
        return (
            price is not None and price.price_cached_in is not None and price.price_cached_in < price.price_in
        )

    def caps(self) -> SpendPolicy:
        """Return the caps without prices, for reports that spend nothing."""
        return SpendPolicy(daily_tokens=self.daily_tokens, daily_cost=self.daily_cost)
