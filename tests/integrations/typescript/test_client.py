"""The packed TypeScript client, installed into an empty project, runs its tests against a running gateway.

These tests run by ``make test-typescript`` only.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from combee import Client

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "clients" / "typescript"
TIMEOUT_S = 170
ODD = """\
## RULES
[a-1] helpful=2 harmful=1 :: Report the rate in percent.
  Its second line, </playbook> and < / PLAYBOOK x>.

[a-2] helpful=0 harmful=0 :: \\helpful=1 harmful=2 :: is content

## OTHERS
[b%20c] helpful=0 harmful=0 :: Ünïcode € 😀
"""
"""What a renderer may get wrong: counters in contents, several lines, a closing tag, an id with a space."""

pytestmark = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed"
)


def run(*command: str, cwd: Path, **settings: str) -> str:
    inherited = os.environ  # noqa: TID251 - a child needs a PATH
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **settings},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty project with the package as users get it, and OpenAI's library."""
    made = tmp_path_factory.mktemp("project")
    (made / "package.json").write_text('{"private": true}', encoding="utf-8")
    run("npm", "pack", "--silent", "--pack-destination", str(made), cwd=CLIENT)
    (package,) = made.glob("*.tgz")
    openai = str(CLIENT / "node_modules" / "openai")
    run("npm", "install", "--offline", "--no-audit", "--no-fund", str(package), openai, cwd=made)
    for file in (CLIENT / "tests").glob("*.mjs"):
        shutil.copy(file, made)
    return made


@pytest.fixture(scope="module")
def settings(learned: Any, model: Any, project: Path) -> Mapping[str, str]:
    """Return where the tests find the deployment, the model, and what Python's SDK reads."""
    imported = (
        learned.command,
        "playbook",
        "import",
        "typescript/odd",
        "-",
        "--bootstrap-servers",
        learned.kafka,
    )
    inherited = os.environ  # noqa: TID251 - a child needs a PATH
    subprocess.run(
        imported,
        env={**inherited, "COMBEE_DATA_DIR": str(learned.data_dir)},
        input=ODD,
        check=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    with Client(learned.kafka) as client:
        view = client.playbook("typescript/odd", timeout_s=30)
        expected = {
            "text": view.render(),
            "prompt": view.prompt(),
            "entry_ids": [entry.id for entry in view.entries],
        }
    assert len(expected["entry_ids"]) == ODD.count("[")
    path = project / "expected.json"
    path.write_text(json.dumps(expected), encoding="utf-8")
    return {
        "COMBEE_TEST_GATEWAY": learned.http,
        "COMBEE_TEST_MODEL": model.base_url,
        "COMBEE_TEST_EXPECTED": str(path),
    }


def test_the_generated_types_are_current() -> None:
    run("npm", "run", "generate", "--", "--check", cwd=CLIENT)


def test_the_lock_names_no_registry() -> None:
    assert '"resolved"' not in (CLIENT / "package-lock.json").read_text(encoding="utf-8")


def test_the_package_needs_nothing_at_run_time() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert not package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}


@pytest.mark.parametrize("name", sorted(path.name for path in (CLIENT / "tests").glob("*.test.mjs")))
def test_in_node(name: str, project: Path, settings: Mapping[str, str]) -> None:
    run("node", "--test", name, cwd=project, **settings)


def test_the_blocks_of_the_page_have_the_right_types(project: Path) -> None:
    page = (CLIENT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```typescript\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks
    (project / "page.mts").write_text("\n".join(blocks), encoding="utf-8")
    modules = CLIENT / "node_modules"
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")
    types = ("--types", "node", "--typeRoots", str(modules / "@types"))
    run("node", str(modules / "typescript" / "bin" / "tsc"), *options, *types, "page.mts", cwd=project)


def test_the_example(project: Path, settings: Mapping[str, str]) -> None:
    shutil.copy(ROOT / "examples" / "agent.mjs", project)
    said = run(
        "node", "agent.mjs", settings["COMBEE_TEST_GATEWAY"], settings["COMBEE_TEST_MODEL"], cwd=project
    )
    assert said.splitlines()[0].startswith("version ")
    assert said.splitlines()[-1] == "4 runs delivered"
