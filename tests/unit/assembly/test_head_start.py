"""Which scan workers give a batch's first group a head start."""

from types import SimpleNamespace
from typing import Any, cast

from combee.assembly.compose import Worker, _head_start
from combee.process.settings.loading import load_settings
from support.clock import ManualClock
from support.rows import each_row

CHEAP = {"m": {"in": 1.0, "cached_in": 0.1, "out": 4.0}}
DEAR = {"m": {"in": 1.0, "out": 4.0}}


@each_row(
    ("prices", "answers_from", "starts_first"),
    [(CHEAP, None, True), (DEAR, None, False), ({}, None, False), (CHEAP, "recorded", False)],
)
def test_a_head_start_is_given_where_cached_tokens_are_cheaper_and_the_model_is_asked(
    prices: dict[str, Any], answers_from: str | None, *, starts_first: bool
) -> None:
    settings = load_settings(model="m", prices=prices)
    worker = cast("Worker", SimpleNamespace(settings=settings, answers_from=answers_from))
    assert (_head_start(worker, ManualClock()) is not None) is starts_first
