"""Which settings there are: few, and each told where somebody would look for it."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import SecretStr

from combee.core.log.replaying.variant import SETTINGS
from combee.process.settings.batch import BatchSettings
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import GROUPS, SUCCESSORS, load_settings
from combee_schemas.plan import BatchOptions, PlanSettings
from support.rows import each_row

ROOT = Path(__file__).parents[4]
FIELDS = {name: info for group in GROUPS.values() for name, info in group.model_fields.items()}
MOST = 85
WHERE_OR_WHO = re.compile(
    r"_(url|endpoint|host|port|file|cafile|certfile|keyfile|dir|id|scope|mechanism|username|region|proxies|version)$"
    r"|^(eval|embedding)_(model|judge)$"
)
"""Settings that say where something is or who one is stand without a guide's sentence."""


def test_there_are_at_most_85_settings_that_a_file_may_hold() -> None:
    lines = (ROOT / "docs/reference/combee.example.toml").read_text("utf-8").splitlines()
    named = [line.partition(" ")[0].lstrip("#") for line in lines if re.match(r"#[a-z_]+ = ", line)]
    assert set(named) <= FIELDS.keys()
    assert len(named) <= MOST


def test_a_guide_names_every_setting_that_is_no_address_name_or_key() -> None:
    guides = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs/guide").rglob("*.md"))
    untold = [
        name
        for name, info in FIELDS.items()
        if SecretStr not in get_args(info.annotation)
        and not WHERE_OR_WHO.search(name)
        and not re.search(rf"\bCOMBEE_{name.upper()}\b|`{name}`|^\[{name}\b|^{name} = ", guides, re.MULTILINE)
    ]
    assert untold == []


def test_who_gives_a_setting_that_there_is_not_hears_that_it_is_a_constant() -> None:
    with pytest.raises(
        SettingsError, match=r"max_span: no such setting; what .* does not list is a constant"
    ):
        load_settings(max_span=3)


def test_a_batch_option_is_written_once_and_settings_manifests_and_variants_have_it() -> None:
    options = BatchOptions.model_fields.keys()
    assert options.isdisjoint(BatchSettings.__annotations__)
    assert options <= PlanSettings.model_fields.keys()
    assert options <= set(SETTINGS)


@each_row("name", sorted(SUCCESSORS))
def test_a_setting_that_a_posture_replaced_is_refused_with_that_posture(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variable, file = f"COMBEE_{name.upper()}", tmp_path / "combee.toml"
    file.write_text(f"{name} = 1\n")
    with monkeypatch.context() as patched:
        patched.setenv(name.upper(), "somebody else's")
        load_settings()
        patched.setenv(variable, "1")
        with pytest.raises(SettingsError, match=rf"{variable} is not a setting any more: COMBEE_TRUST=\w+"):
            load_settings()
    with monkeypatch.context() as patched:
        patched.setenv("COMBEE_CONFIG", str(file))
        with pytest.raises(SettingsError, match=f"{name} is not a setting any more"):
            load_settings()
