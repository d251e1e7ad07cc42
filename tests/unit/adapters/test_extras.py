"""What an error message says of a part that is not installed."""

import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from combee.adapters import extras
from combee.adapters.extras import pip_install
from support.shown import ROOT


def test_from_a_checkout_the_hint_names_the_command_that_works_there() -> None:
    assert pip_install("mcp") == f"{sys.executable} -m pip install -e '{ROOT}[mcp]'"


@pytest.mark.parametrize(
    ("metadata", "origin"),
    [
        (None, ""),
        ('{"url": "file:///a/combee-0.1.0-py3-none-any.whl"}', " @ file:///a/combee-0.1.0-py3-none-any.whl"),
    ],
)
def test_from_a_package_the_hint_names_what_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: str | None, origin: str
) -> None:
    installed = tmp_path / "combee-0.1.0.dist-info"
    installed.mkdir()
    if metadata:
        (installed / "direct_url.json").write_text(metadata)
    monkeypatch.setattr(extras, "distribution", lambda _name: PathDistribution(installed))
    module = tmp_path / "lib" / "python3" / "site-packages" / "combee" / "adapters" / "extras.py"

    hint = pip_install("mcp", "cli", module=module)

    assert hint == f"{sys.executable} -m pip install 'combee[mcp,cli]{origin}'"
