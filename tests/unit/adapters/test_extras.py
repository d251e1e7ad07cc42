"""What an error message says of a part that is not installed."""

import sys
from pathlib import Path

from combee.adapters.extras import pip_install
from support.shown import ROOT


def test_from_a_checkout_the_hint_names_the_command_that_works_there() -> None:
    assert pip_install("mcp") == f"{sys.executable} -m pip install -e '{ROOT}[mcp]'"


def test_from_a_package_the_hint_names_the_package(tmp_path: Path) -> None:
    module = tmp_path / "lib" / "python3" / "site-packages" / "combee" / "adapters" / "extras.py"

    assert pip_install("mcp", "cli", module=module) == "pip install 'combee[mcp,cli]'"
