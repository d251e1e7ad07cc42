"""The setting of the gate: for all playbooks, for some, and what cannot be."""

from pathlib import Path

import pytest

from combee.assembly import compose
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from support.rows import each_row


def test_a_gate_is_set_for_all_and_for_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "combee.toml"
    named.write_text('gate = "approve"\n[gates]\n"support/*" = "evaluate,approve"\n"free" = "off"\n')
    named.chmod(0o600)
    monkeypatch.setenv("COMBEE_CONFIG", str(named))
    policy = load_settings().gate.policy()
    assert policy.judges_of("checkout") == ("approve",)
    assert policy.judges_of("support/refunds") == ("evaluate", "approve")
    assert policy.judges_of("free") == ()
    assert load_settings(gate="off").gate.policy().judges_of("checkout") == ()
    monkeypatch.setenv("COMBEE_GATES", '{"free": "evaluate"}')
    assert load_settings().gate.policy().judges_of("free") == ("evaluate",)


@each_row("gate", ["on", "", "evaluate,", "off,approve"])
def test_what_is_no_judge_is_a_wrong_setting(gate: str) -> None:
    with pytest.raises(SettingsError, match="COMBEE_GATE"):
        load_settings(gate=gate)


def test_where_nothing_is_set_no_service_judges() -> None:
    assert load_settings().gate.policy().judges_of("checkout") is None
    assert compose.judges(load_settings()) == ()
    assert compose.judges(load_settings(gate="off")) == ()
    assert compose.judges(load_settings(gate="approve")) == ()
    assert compose.judges(load_settings(gates={"a": "evaluate"})) == ("evaluate",)
