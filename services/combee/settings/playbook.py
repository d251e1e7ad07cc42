"""Settings of playbooks: how large one may grow, what its model calls cost, and the caps."""

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from combee.core.playbook.spend import SpendPolicy
from combee.settings.group import TOML_FILE, Group, SettingsError

MOST_PRICE = 1e6


class PlaybookSettings(Group):
    """How large a playbook may grow."""

    playbook_tokens: int = Field(
        16_000, ge=100, le=24_000, description="token budget of a playbook's entries (tokens)"
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
    price_in: float | None = Field(None, ge=0, le=MOST_PRICE, description="a million tokens read (money)")
    price_cached_in: float | None = Field(
        None,
        ge=0,
        le=MOST_PRICE,
        description="the same from the server's prompt cache (money); unset: `price_in`",
    )
    price_out: float | None = Field(None, ge=0, le=MOST_PRICE, description="a million tokens written (money)")
    reflection_tokens: int = Field(
        100_000,
        ge=0,
        le=10**9,
        description="most that a reflection's own calls count for, read and written each (tokens)",
    )
    prices: dict[str, Price] = Field(
        default_factory=dict,
        description='the same per model, in `combee.toml`: `[prices."openai/gpt-4.1-mini"]` with `in`, `out` and,'
        " if it differs, `cached_in`",
    )

    def policy(self, model: str | None) -> SpendPolicy:
        """Return caps and prices for a model.

        Raises
        ------
        SettingsError
            If money is capped and the model has no price.
        """
        listed = self.prices.get(model or "")
        price_in = self.price_in if self.price_in is not None else listed and listed.price_in
        price_out = self.price_out if self.price_out is not None else listed and listed.price_out
        cached_in = self.price_cached_in
        if cached_in is None and listed and self.price_in is None:
            cached_in = listed.price_cached_in  # it belongs to the listed price of what is read
        if self.daily_cost is not None and (price_in is None or price_out is None):
            raise SettingsError(
                f"COMBEE_DAILY_COST caps money, and {model or 'the model'} has no price: set COMBEE_PRICE_IN"
                f' and COMBEE_PRICE_OUT (per million tokens), or [prices."{model}"] with in and out in {TOML_FILE}'
            )
        return replace(
            self.caps(), price_in=price_in or 0.0, price_out=price_out or 0.0, price_cached_in=cached_in
        )

    def caps(self) -> SpendPolicy:
        """Return the caps alone, for whoever spends nothing."""
        return SpendPolicy(
            daily_tokens=self.daily_tokens,
            daily_cost=self.daily_cost,
            reflection_tokens=self.reflection_tokens,
        )
