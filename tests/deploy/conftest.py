"""The image, built once; without a container engine all of this is skipped, and says so."""

from collections.abc import Iterator, Mapping

import pytest

from support import engine
from support.compose import Deployment, build, context

IMAGE = "combee:test"
NO_ENGINE = "no container engine answers: COMBEE_TEST_ENGINE=start make test-deploy starts one (Debian, root)"
FACTS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, machine_env: Mapping[str, str], pytestconfig: pytest.Config
) -> Iterator[Deployment]:
    # A setting of the machine would go before the one in .env.
    plain = {name: value for name, value in machine_env.items() if not name.startswith(("COMBEE_", "OPENAI_"))}
    env = {**plain, "COMBEE_IMAGE": IMAGE}
    if not engine.answers(env):
        pytest.skip(NO_ENGINE)
    folder = tmp_path_factory.mktemp("deploy") / "combee"
    context(folder)
    project = Deployment(folder=folder, env=env, files=("docker-compose.yml",))
    build(project)
    size, base = (image_bytes(project, name) for name in (IMAGE, env.get("PYTHON_IMAGE", "python:3.11-slim")))
    facts = pytestconfig.stash.setdefault(FACTS, [])
    facts.append(f"image: {size / 1e6:.0f} MB, of which {base / 1e6:.0f} MB are the base image")
    if stand_ins := [env[name] for name in ("PYTHON_IMAGE", "KAFKA_IMAGE") if name in env]:
        facts.append(f"base images: {', '.join(stand_ins)}, not the public ones")
    yield project
    project.docker("image", "rm", "-f", IMAGE)


def image_bytes(project: Deployment, image: str) -> int:
    return int(project.docker("image", "inspect", "-f", "{{.Size}}", image))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for fact in config.stash.get(FACTS, []):
        terminalreporter.write_line(fact)
