"""docker-compose.yml and its variant say what the code says; no Docker engine is needed to see that."""

import asyncio
import json
import re
import tomllib
from http import HTTPStatus
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import SecretStr

from combee.adapters.embedded_kafka.data_dir import VERSION
from combee.assembly.compose import DRAIN_MARGIN_S, FRONTS, JUDGING, ROLES
from combee.gateway.access.keys import keyring
from combee.process.settings.gateway import GatewaySettings
from combee.process.settings.group import SettingsError
from combee.process.settings.loading import GROUPS
from combee.process.settings.model import ModelSettings
from combee.process.telemetry.health import serving
from support import shown

ASKING = ("reflect", "scan", "evaluate")
IN_THE_IMAGE = {"cli", "dashboard", "otel", "signatures", "sim"}
VERIFYING = ("reflect", "shuffle", "control", "gateway")
EVERY = (*ROLES, *JUDGING, *FRONTS)
IMAGE = "${COMBEE_IMAGE:-combee:0.1.0}"
MODEL_TIMEOUT_S = float(ModelSettings.model_fields["model_timeout_s"].default)


class Loader(yaml.SafeLoader):
    """YAML with Compose's ``!reset``."""


Loader.add_constructor("!reset", lambda _loader, _node: [])


def _read(name: str) -> dict[str, Any]:
    text = (shown.ROOT / name).read_text("utf-8")
    found: dict[str, Any] = yaml.load(text, Loader)  # noqa: S506 - a SafeLoader with one tag more
    return found


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = _read("docker-compose.yml")["services"]
    return found


@pytest.mark.parametrize("name", ["docker-compose.yml", "deploy/simulated.yml"])
def test_the_public_schema_of_compose_files_allows_it(name: str) -> None:
    # As a file: an import of its package takes a second.
    package = distribution("check-jsonschema")
    schema = package.locate_file("check_jsonschema/builtin_schemas/vendor/compose-spec.json")
    # By name: the address of the draft in the schema is one that no library knows.
    draft = jsonschema_rs.Draft7Validator(json.loads(Path(str(schema)).read_text("utf-8")))
    draft.validate(_read(name))


def test_every_role_has_a_container_of_its_own_and_one_image_serves_all(services: dict[str, Any]) -> None:
    commands = {name: one["command"] for name, one in services.items() if name in EVERY}

    assert commands == {role: ["worker", role] for role in EVERY}
    assert services.keys() == {"kafka", "topics", *EVERY}
    assert len({one["image"] for name, one in services.items() if name != "kafka"}) == 1


def test_every_command_is_one_that_the_command_line_takes(services: dict[str, Any]) -> None:
    variant = _read("deploy/simulated.yml")["services"]
    for one in (*services.values(), *variant.values()):
        if "command" in one:
            shown.parse(one["command"])


def test_the_broker_is_the_version_that_is_tested_and_is_published_on_loopback_only(
    services: dict[str, Any],
) -> None:
    published = [port for one in services.values() for port in one.get("ports", ())]

    assert services["kafka"]["image"] == f"${{KAFKA_IMAGE:-apache/kafka:{VERSION}}}"
    assert published == ["127.0.0.1:9092:9092", "127.0.0.1:8750:8750"]


def test_services_wait_for_the_topics_and_the_topics_for_a_healthy_broker(services: dict[str, Any]) -> None:
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert "healthcheck" in services["kafka"]
    for role in EVERY:
        assert services[role]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}


async def _exit_code(check: dict[str, Any], port: int) -> int:
    """Run a health check as the engine does."""
    _, *command = (word.replace("$$", "$") for word in check["test"])
    process = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": "/usr/bin:/bin", "COMBEE_METRICS_PORT": str(port)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def test_a_service_is_healthy_while_it_says_so_itself(services: dict[str, Any]) -> None:
    (check,) = {json.dumps(services[role]["healthcheck"]) for role in EVERY}
    status = HTTPStatus.SERVICE_UNAVAILABLE
    async with serving("127.0.0.1", 0, {"/readyz": lambda: (status, "text/plain", b"so it is")}) as address:
        port = int(address.rpartition(":")[2])
        assert await _exit_code(json.loads(check), port) != 0
        status = HTTPStatus.OK
        assert await _exit_code(json.loads(check), port) == 0
    assert await _exit_code(json.loads(check), port) != 0


async def test_no_health_check_starts_an_interpreter_or_a_virtual_machine(services: dict[str, Any]) -> None:
    variant = _read("deploy/simulated.yml")["services"]
    checks = [
        one["healthcheck"]["test"] for one in (*services.values(), variant["sim"]) if "healthcheck" in one
    ]
    assert {command for _, command, *_ in checks} == {"bash", "test"}

    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as broker:
        port = broker.sockets[0].getsockname()[1]
        (*before, probe) = services["kafka"]["healthcheck"]["test"]
        check = {"test": [*before, probe.replace("localhost/9092", f"127.0.0.1/{port}")]}
        assert await _exit_code(check, port) == 0
    assert await _exit_code(check, port) != 0


def test_the_image_is_built_once_and_never_asked_of_a_registry(services: dict[str, Any]) -> None:
    variant = _read("deploy/simulated.yml")["services"]
    ours = {name: one for name, one in {**services, "sim": variant["sim"]}.items() if name != "kafka"}

    assert [name for name, one in {**ours, **variant}.items() if "build" in one] == ["topics"]
    assert {(one["image"], one["pull_policy"]) for one in ours.values()} == {(IMAGE, "never")}
    for name in {*ours} - {"topics"}:  # who waits for it finds the image
        assert "topics" in ours[name]["depends_on"]


def test_nothing_starts_with_the_example_as_it_is_and_the_reason_is_said(services: dict[str, Any]) -> None:
    lines = (shown.ROOT / "deploy" / ".env.example").read_text("utf-8").splitlines()

    assert "COMBEE_GATEWAY_KEYS=" in lines
    given = services["gateway"]["environment"]["COMBEE_GATEWAY_KEYS"]
    assert re.fullmatch(r"\$\{COMBEE_GATEWAY_KEYS:\?make a key .+\.env\.example says how\}", given)
    (example,) = [line for line in lines if line.startswith("# COMBEE_GATEWAY_KEYS=")]
    (key,) = json.loads(example.partition("=")[2])
    assert keyring(GatewaySettings(gateway_keys=SecretStr(json.dumps([key | {"key": "k" * 24}]))))


def test_the_gateway_of_a_container_starts_with_no_key_that_everybody_knows(services: dict[str, Any]) -> None:
    lines = (shown.ROOT / "deploy" / ".env.example").read_text("utf-8").splitlines()
    (keys,) = [line.partition("=")[2] for line in lines if line.startswith("# COMBEE_GATEWAY_KEYS=")]

    assert services["gateway"]["environment"]["COMBEE_GATEWAY_HOST"] == "0.0.0.0"  # noqa: S104 - in a container
    with pytest.raises(SettingsError):
        keyring(GatewaySettings(gateway_keys=SecretStr(keys)))


def test_services_that_ask_a_model_may_finish_their_calls(services: dict[str, Any]) -> None:
    for role in ASKING:
        assert int(services[role]["stop_grace_period"].removesuffix("s")) > MODEL_TIMEOUT_S + DRAIN_MARGIN_S


def test_listeners_agree_with_each_other_and_with_the_services(services: dict[str, Any]) -> None:
    broker = services["kafka"]["environment"]
    listening = dict(one.split("://:") for one in broker["KAFKA_LISTENERS"].split(","))
    advertised = dict(one.split("://") for one in broker["KAFKA_ADVERTISED_LISTENERS"].split(","))

    assert {name: address.rpartition(":")[2] for name, address in advertised.items()} == {
        name: port for name, port in listening.items() if name != "CONTROLLER"
    }
    assert advertised[broker["KAFKA_INTER_BROKER_LISTENER_NAME"]] == "kafka:19092"
    assert advertised["OUTSIDE"] == "localhost:9092"
    for role in EVERY:
        assert services[role]["environment"]["COMBEE_BOOTSTRAP_SERVERS"] == "kafka:19092"


def test_every_variable_is_a_setting() -> None:
    known = {f"COMBEE_{name.upper()}" for group in GROUPS.values() for name in group.model_fields}
    for name in ("docker-compose.yml", "deploy/simulated.yml", "deploy/.env.example", "deploy/Dockerfile"):
        used = set(re.findall(r"COMBEE_[A-Z_]+", (shown.ROOT / name).read_text("utf-8")))
        assert used <= {*known, "COMBEE_IMAGE"}, name


def test_the_simulated_variant_gives_the_asking_services_the_stand_ins_loopback() -> None:
    variant = _read("deploy/simulated.yml")["services"]
    port = variant["sim"]["command"][variant["sim"]["command"].index("--port") + 1]

    assert variant.keys() == {"sim", *ASKING}
    for role in ASKING:
        assert variant[role]["network_mode"] == "service:sim"
        assert variant[role]["environment"]["COMBEE_MODEL"] == "simulated"
        assert variant[role]["environment"]["COMBEE_BASE_URL"] == f"http://127.0.0.1:{port}/v1"


def test_no_name_of_a_host_is_given_to_a_service_in_anothers_namespace(services: dict[str, Any]) -> None:
    text = (shown.ROOT / "deploy" / "simulated.yml").read_text("utf-8")
    named = {role for role in EVERY if "extra_hosts" in services[role]}

    assert named == set(ASKING)  # who may ask a model on this machine
    for role in named:  # in the service itself: within an anchor Compose does not apply it
        assert re.search(rf"^  {role}:\n(?:    .*\n)*?    extra_hosts: !reset \[\]\n", text, re.MULTILINE)


def test_services_that_share_a_namespace_share_no_port_and_their_health_is_a_file() -> None:
    variant = _read("deploy/simulated.yml")["services"]
    for role in ASKING:  # any number of replicas of each
        assert variant[role]["environment"]["COMBEE_METRICS_PORT"] == 0
        ready = variant[role]["environment"]["COMBEE_READY_FILE"]
        assert variant[role]["healthcheck"]["test"] == ["CMD", "test", "-f", ready]


def test_containers_cannot_write_and_have_no_privilege(services: dict[str, Any]) -> None:
    for name, one in {**services, "sim": _read("deploy/simulated.yml")["services"]["sim"]}.items():
        if name != "kafka":
            assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
            assert one["security_opt"] == ["no-new-privileges:true"]


def test_the_working_directory_of_the_image_is_roots_and_its_user_needs_no_warning() -> None:
    text = (shown.ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    _, _, image = text.rpartition("FROM ")
    (directory,) = re.findall(r"^WORKDIR (\S+)", image, re.MULTILINE)
    (made,) = re.findall(r"^COPY --from=build (\S+) (\S+)", image, re.MULTILINE)

    assert directory == made[1]  # copied, hence root's and nobody else's to write
    assert image.index("WORKDIR") < image.index("USER")
    assert "--chown" not in image
    assert re.search(r"useradd --uid \d{5} (?!.*--system)", image)  # above 999 a system user is warned of


def test_the_image_is_not_root_has_a_python_we_support_and_extras_that_exist() -> None:
    text = (shown.ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    project = tomllib.loads((shown.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (extras,) = re.findall(r"((?:--extra \w+ )+)--constraint", (shown.ROOT / "Makefile").read_text("utf-8"))

    assert re.findall(r"^ARG PYTHON_IMAGE=python:([\d.]+)-slim$", text, re.MULTILINE) == [
        project["requires-python"].removeprefix(">=")
    ]
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    user = int(re.findall(r"^USER (\d+)$", text, re.MULTILINE)[0])
    assert user >= 10_000
    assert set(extras.replace("--extra", "").split()) == IN_THE_IMAGE
    assert project["optional-dependencies"].keys() >= IN_THE_IMAGE


def test_the_image_checks_the_hashes_of_what_it_installs() -> None:
    text = (shown.ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    installs = re.findall(r"pip .*?install (.*?)(?= &&|\n[A-Z])", text.replace("\\\n", ""), re.DOTALL)

    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-index --no-deps /wheel/" in one for one in installs)


def test_who_verifies_sources_has_the_file_of_sources_and_nobody_else(services: dict[str, Any]) -> None:
    path = {role: services[role]["environment"]["COMBEE_SOURCES_FILE"] for role in EVERY}
    inside = "${COMBEE_SOURCES_FILE:+/run/secrets/sources.toml}"

    assert path == {role: inside if role in VERIFYING else "" for role in EVERY}
    assert {role: services[role].get("secrets", []) for role in EVERY} == {
        role: ["sources.toml"] if role in VERIFYING else [] for role in EVERY
    }
    # Without one, nothing is mounted there that could be believed.
    assert _read("docker-compose.yml")["secrets"] == {
        "sources.toml": {"file": "${COMBEE_SOURCES_FILE:-/dev/null}"}
    }


def test_secrets_stay_out_of_the_image_and_of_git() -> None:
    ignored = (shown.ROOT / ".dockerignore").read_text("utf-8").splitlines()

    assert "*" in ignored
    assert not any(".env" in line for line in ignored if line.startswith("!"))
    assert ".env" in (shown.ROOT / ".gitignore").read_text("utf-8").splitlines()
