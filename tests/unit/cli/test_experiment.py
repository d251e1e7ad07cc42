"""What ``combee experiment`` hands to an experiment."""

from typing import Any

import pytest
from typer.testing import CliRunner

from combee.cli import experiment
from combee.cli.__main__ import app
from combee.core.playbook.spend import SpendPolicy


def test_prices_of_the_command_line_reach_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(experiment, "_run", lambda _name, setup, *_, **__: given.append(setup.prices))
    monkeypatch.setattr(experiment, "_data", lambda *_, **__: None)
    ran = CliRunner().invoke(app, ["experiment", "speed", "--price-in", "0.4", "--price-out", "1.6"])
    assert (ran.exit_code, given) == (0, [SpendPolicy(price_in=0.4, price_out=1.6)]), ran.output
