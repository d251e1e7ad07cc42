"""The posture: one word for all playbooks, or one by pattern; manifests record it with its number."""

from pathlib import Path

import pytest

from combee.core.gate.policy import GatePolicy
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import load_settings
from combee.process.settings.methods import as_configured, plan_settings

TABLE = '[trust]\n"*" = "lab"\n"community/*" = "public"\n"community/core" = "team"\n'


def test_a_team_is_the_default_and_a_word_names_another_posture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().batch.postures.of("p") == "team"
    monkeypatch.setenv("COMBEE_TRUST", "public")
    assert load_settings().batch.postures.of("p") == "public"
    monkeypatch.setenv("COMBEE_TRUST", '{"a/*": "lab"}')
    postures = load_settings().batch.postures
    assert [postures.of(name) for name in ("a/b", "a/b@branch", "b")] == ["lab", "lab", "team"]
    monkeypatch.setenv("COMBEE_TRUST", "nobody")
    with pytest.raises(SettingsError, match="COMBEE_TRUST"):
        load_settings()


def test_the_longest_pattern_of_the_table_wins_and_a_branch_has_its_playbook_s_posture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "combee.toml"
    file.write_text(TABLE)
    monkeypatch.setenv("COMBEE_CONFIG", str(file))
    postures = load_settings().batch.postures
    names = ("p", "community/x", "community/x@short", "community/core")
    assert [postures.of(name) for name in names] == ["lab", "public", "public", "team"]


def test_a_manifest_records_the_posture_and_its_number_and_a_replay_has_them() -> None:
    settings = load_settings(trust={"a": "public"}, colluders=4).batch
    team, public = (plan_settings(settings, trust=settings.postures.of(name)) for name in ("b", "a"))
    assert ((team.trust, team.colluders), (public.trust, public.colluders)) == (("team", 0), ("public", 4))
    for plan in (team, public):
        again = load_settings(**as_configured(plan)).batch
        assert plan_settings(again) == plan


def test_outside_a_lab_results_are_always_checked_because_a_model_would_say_who_said_what() -> None:
    settings = load_settings(trust={"lab": "lab", "a": "public"}, carry=False).batch
    checked = {
        name: plan_settings(settings, trust=settings.postures.of(name)).carry for name in ("lab", "a", "b")
    }
    assert checked == {"lab": False, "a": True, "b": True}


def test_a_public_playbook_has_a_judge_whatever_the_gate_says() -> None:
    settings = load_settings(trust={"a/*": "public"})
    assert (settings.gates.judges_of("a/b"), settings.gates.judges_of("b")) == (("approve",), None)
    assert settings.gates.all_judges == {"approve"}
    off = load_settings(trust="public", gate="off").gates
    assert off.judges_of("p") == ("approve",)
    other = load_settings(trust="public", gate="evaluate").gates
    assert other.judges_of("p") == ("evaluate",)
    assert GatePolicy().judges_of("p") is None
