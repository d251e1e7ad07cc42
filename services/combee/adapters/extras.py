"""The command that installs an optional part of Combee, as error messages name it.

This module imports only the standard library, because nothing else may be installed.
"""

import sys
from pathlib import Path

HERE = Path(__file__)


def pip_install(*extras: str, module: Path = HERE) -> str:
    """Return the command that installs extras: of the checkout that ``module`` runs from, else of the package."""
    names = ",".join(extras)
    checkout = module.parents[3]
    if (checkout / "pyproject.toml").is_file() and module.parents[2].name == "services":
        # No index has what a checkout is at.
        return f"{sys.executable} -m pip install -e '{checkout}[{names}]'"
    return f"pip install 'combee[{names}]'"
