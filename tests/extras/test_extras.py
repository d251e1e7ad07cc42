"""Each extra, installed by itself from the wheel into a fresh environment, has what it promises (network)."""

import os
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from support.integrations import built, environment
from support.shown import ROOT

EXTRAS = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
)
PROMISES: dict[str, str] = {
    "services": "import combee.assembly.compose, combee.shuffle.app, combee.scan.handler",
    "cli": "import combee.cli.__main__, combee.cli.playbook.group, combee.cli.top.verb",
    "sim": "import combee_sim.server.server",
    "embedded": "import combee.adapters.embedded_kafka",
    "experiments": "import combee.cli.playbook.controller, matplotlib, plotext",
    "gateway": "import combee.gateway.server, combee.assembly.compose",
    "dashboard": "import combee.dashboard.mount, combee.gateway.server",
    "http": "from combee import Client; Client('http://127.0.0.1:1')",
    "signatures": "import combee.adapters.ed25519",
    "ace": "import combee.integrations.ace",
    "gepa": "import combee.integrations.gepa",
    "mcp": "import combee.integrations.mcp.server, combee.cli.mcp, combee.adapters.http",
    "langchain": "import combee.integrations.langchain",
    "openai-agents": "import combee.integrations.openai_agents",
    "litellm": "import combee.integrations.litellm",
    "litellm-proxy": "import combee.integrations.litellm, litellm.proxy.proxy_server",
    "otel": "import combee.gateway.otlp, combee.adapters.opentelemetry.sending",
    "azure": "import azure.identity.aio",
    "msk": "import combee.adapters.kafka.tokens, aws_msk_iam_sasl_signer",
    "all": "import combee.gateway.server, combee.adapters.embedded_kafka, combee_sim.server.server",
}
"""What runs in the environment of an extra."""
HINT = "from combee.adapters.extras import pip_install; print(pip_install('http'))"
INSTALL_S = 900


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., str]:
    """Run a script in an environment, away from the checkout; return its output."""

    def run(python: Path, *arguments: str) -> str:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # noqa: TID251
        ended = subprocess.run(
            (str(python), *arguments),
            cwd=tmp_path,
            env=inherited,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run


def test_each_extra_promises_something() -> None:
    assert set(EXTRAS) == PROMISES.keys()


@pytest.mark.timeout(INSTALL_S)
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_installed_by_itself_has_what_it_promises(
    extra: str, wheel: Path, ran: Callable[..., str], tmp_path: Path
) -> None:
    python = environment(tmp_path / "environment", wheel, extra, tools=())

    ran(python, "-W", "error::ImportWarning", "-c", PROMISES[extra])
    if extra in {"cli", "mcp", "all"}:
        assert "Operate" in ran(python, "-m", "combee.cli", "--help")
    assert ran(python, "-c", HINT) == f"{python} -m pip install 'combee[http] @ {wheel.as_uri()}'\n"


@pytest.mark.timeout(INSTALL_S)
def test_the_command_that_a_checkout_names_works_there(ran: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    subprocess.run(("python3", "-m", "venv", str(folder)), check=True)
    python = folder / "bin" / "python"
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "services",
        "schemas",
        "experiments",
    ):
        (copy / name).symlink_to(ROOT / name)
    ran(python, "-m", "pip", "install", "-q", "-e", str(copy))
    named = ran(python, "-c", HINT).strip()
    assert named.endswith("[http]'")

    subprocess.run(named, shell=True, check=True, cwd=tmp_path)  # noqa: S602 - as a user types it
    ran(python, "-c", PROMISES["http"])
