"""Without the gateway's extra everything else works, and the gateway says what it needs."""

import subprocess
import sys

CODE = """
import asyncio, sys
sys.modules["fastapi"] = None
from combee import compose
from combee.ports import FatalError
from combee.settings.loading import load_settings
assert "gateway" not in compose.ROLES
try:
    asyncio.run(compose.FRONTS["gateway"](None))
except FatalError as error:
    print(error)
"""


def test_without_fastapi_the_gateway_names_its_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'combee[gateway]'" in done.stdout
