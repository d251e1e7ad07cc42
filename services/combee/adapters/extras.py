"""The command that installs an optional part of Combee, as error messages name it.

This module imports only the standard library, because nothing else may be installed.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HERE = Path(__file__)


def pip_install(*extras: str, module: Path = HERE) -> str:
    """Return the command that installs extras: of the checkout that ``module`` runs from, else of the package."""
    names = ",".join(extras)
    checkout = module.parents[3]
    if (checkout / "pyproject.toml").is_file() and module.parents[2].name == "services":
        # No index has what a checkout is at.
        return f"{sys.executable} -m pip install -e '{checkout}[{names}]'"
    return f"{sys.executable} -m pip install 'combee[{names}]{_origin()}'"


def _origin() -> str:
    """Return where this installation came from, as pip takes it; empty: from a package index (PEP 610)."""
    try:
        text = distribution("combee").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    url = json.loads(text).get("url") if text else None
    return f" @ {url}" if url else ""
