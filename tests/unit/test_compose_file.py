"""docker-compose.yml and its variant say what the code says; no Docker engine is needed to see that."""

import json
import re
import tomllib
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import SecretStr

from combee.adapters.embedded_kafka.paths import VERSION
from combee.compose import DRAIN_MARGIN_S, FRONTS, ROLES
from combee.gateway.keys import keyring
from combee.runtime.gateway_settings import GatewaySettings
from combee.runtime.group import SettingsError
from combee.runtime.settings import GROUPS, ModelSettings
from support import shown

ASKING = ("reflect", "scan")
EVERY = (*ROLES, *FRONTS)
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
    schema = files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json")

    # By name: the address of the draft in the schema is one that no library knows.
    draft = jsonschema.Draft7Validator(json.loads(schema.read_text("utf-8")))
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

    assert services["kafka"]["image"] == f"apache/kafka:{VERSION}"
    assert published == ["127.0.0.1:9092:9092", "127.0.0.1:8750:8750"]


def test_services_wait_for_the_topics_and_the_topics_for_a_healthy_broker(services: dict[str, Any]) -> None:
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert "healthcheck" in services["kafka"]
    for role in EVERY:
        assert services[role]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}


def test_a_service_is_healthy_while_it_says_so_itself(services: dict[str, Any]) -> None:
    for role in EVERY:
        port = services[role]["environment"]["COMBEE_METRICS_PORT"]
        *_, program = services[role]["healthcheck"]["test"]
        assert f"127.0.0.1:{port}/readyz" in program
        compile(program, "healthcheck", "exec")


def test_the_gateway_of_a_container_starts_with_no_key_that_everybody_knows(services: dict[str, Any]) -> None:
    lines = (shown.ROOT / "deploy" / ".env.example").read_text("utf-8").splitlines()
    (keys,) = [line.partition("=")[2] for line in lines if line.startswith("COMBEE_GATEWAY_KEYS=")]

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
        assert used <= known, name


def test_the_simulated_variant_gives_the_asking_services_the_stand_ins_loopback() -> None:
    variant = _read("deploy/simulated.yml")["services"]
    port = variant["sim"]["command"][variant["sim"]["command"].index("--port") + 1]

    assert variant.keys() == {"sim", *ASKING}
    for role in ASKING:
        assert variant[role]["network_mode"] == "service:sim"
        assert variant[role]["extra_hosts"] == []
        assert variant[role]["environment"]["COMBEE_MODEL"] == "simulated"
        assert variant[role]["environment"]["COMBEE_BASE_URL"] == f"http://127.0.0.1:{port}/v1"


def test_the_image_is_not_root_has_a_python_we_support_and_extras_that_exist() -> None:
    text = (shown.ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    project = tomllib.loads((shown.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = re.findall(r'"\.\[([\w,]+)\]"', text)[0].split(",")

    assert set(re.findall(r"FROM python:([\d.]+)-slim", text)) == {
        project["requires-python"].removeprefix(">=")
    }
    assert re.search(r"^USER (?!root)", text, re.MULTILINE)
    assert set(extras) <= project["optional-dependencies"].keys()
    assert "embedded" not in extras


def test_secrets_stay_out_of_the_image_and_of_git() -> None:
    ignored = (shown.ROOT / ".dockerignore").read_text("utf-8").splitlines()

    assert "*" in ignored
    assert not any(".env" in line for line in ignored if line.startswith("!"))
    assert ".env" in (shown.ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_the_working_directory_of_the_image_is_roots_and_nobody_else_writes_there() -> None:
    steps = [line.split() for line in (shown.ROOT / "deploy" / "Dockerfile").read_text("utf-8").splitlines()]
    last = steps[max(at for at, step in enumerate(steps) if step[:1] == ["FROM"]) :]
    places = {step[0]: at for at, step in enumerate(last) if step}
    folder = last[places["WORKDIR"]][1]

    assert not folder.startswith(("/tmp", "/var/tmp", "/dev/shm"))  # noqa: S108 - what it must not be
    assert places["WORKDIR"] < places["USER"], "made while the build is still root"
