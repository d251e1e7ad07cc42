"""docker-compose.yml and its variant say what the code says; no Docker engine is needed to see that."""

import asyncio
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import termios
import time
import tomllib
from http import HTTPStatus
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from combee.adapters.embedded_kafka.data_dir import VERSION
from combee.adapters.ports import FatalError
from combee.assembly.compose import DRAIN_MARGIN_S, FRONTS, JUDGING, ROLES
from combee.gateway.access.keys import keyring
from combee.gateway.server import check_bind
from combee.process.settings.gateway import GatewaySettings
from combee.process.settings.kafka import KafkaSettings
from combee.process.settings.loading import GROUPS, in_files, secrets
from combee.process.settings.model import ModelSettings
from combee.process.telemetry.health import serving
from support import shown

ASKING = ("reflect", "scan", "evaluate")
IN_THE_IMAGE = {"cli", "dashboard", "otel", "signatures", "sim"}
EVERY = (*ROLES, *JUDGING, *FRONTS)
IMAGE = "${COMBEE_IMAGE:-combee:0.1.0}"
FILES = ("docker-compose.yml", "deploy/simulated.yml", "deploy/three-nodes.yml")
ONCE = ("check", "topics")
"""What runs our image and ends."""
KAFKA = ("volume", "controller", "kafka", "carry-over")
KEYS = {
    "COMBEE_API_KEY_FILE": ("model-key", {"reflect", "scan", "evaluate"}),
    "COMBEE_AZURE_API_KEY_FILE": ("azure-key", {"reflect", "scan", "evaluate"}),
    "COMBEE_AZURE_AD_TOKEN_FILE": ("azure-token", {"reflect", "scan", "evaluate"}),
    "COMBEE_EMBEDDING_API_KEY_FILE": ("embedding-key", {"scan", "shuffle"}),
    "COMBEE_EVAL_API_KEY_FILE": ("eval-key", {"evaluate"}),
    "COMBEE_SALT_FILE": ("salt", {"shuffle", "publish"}),
    "COMBEE_GATEWAY_KEYS_FILE": ("gateway-keys", {"gateway"}),
    "COMBEE_SOURCES_FILE": ("sources.toml", {"reflect", "shuffle", "control", "gateway"}),
}
"""The variable of each secret, its name in the container, and who needs it."""
OF_ANOTHER_KAFKA = {
    name for name in KafkaSettings.model_fields if re.match("s(ecurity|sl|asl)_|oauth_|aws_", name)
}
OF_ONE_PROCESS = {"slot", "data_dir", "ready_file", "metrics_host"}
OF_AGENTS = {"source", "source_secret"}
OF_REFLECT = ("method", "prompts", "reflect_entry_tokens", "reflect_trace_tokens")
READ_BY = {
    "reflect": ("model", "spend", "sources", *OF_REFLECT),
    "scan": ("model", "spend"),
    "shuffle": ("model", "batch", "sizing", "playbook", "tenants", "spend", "sources"),
    "publish": ("playbook", "gate", "spend", "trust"),
    "control": ("sizing", "spend", "sources"),
    "evaluate": ("model", "evaluation", "gate", "spend", "trust"),
    "gateway": (
        "batch",
        "sizing",
        "playbook",
        "tenants",
        "spend",
        "gate",
        "gateway",
        "sources",
        "embedding_model",
    ),
}
"""Groups of settings, or single ones, that a service reads (``combee.assembly.compose``), apart from Kafka's and a
worker's."""
MODEL_TIMEOUT_S = float(ModelSettings.model_fields["model_timeout_s"].default)


class Loader(yaml.CSafeLoader):
    """YAML with Compose's ``!reset`` and ``!override``."""


def _override(loader: Loader, node: yaml.Node) -> list[Any]:
    assert isinstance(node, yaml.SequenceNode)
    return loader.construct_sequence(node)


Loader.add_constructor("!reset", lambda _loader, _node: [])
Loader.add_constructor("!override", _override)


def _read(name: str) -> dict[str, Any]:
    text = (shown.ROOT / name).read_text("utf-8")
    found: dict[str, Any] = yaml.load(text, Loader)  # noqa: S506 - a SafeLoader with one tag more
    return found


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = _read("docker-compose.yml")["services"]
    return found


@pytest.mark.parametrize("name", FILES)
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
    assert services.keys() == {*KAFKA, *ONCE, *EVERY}
    assert {one["image"] for name, one in services.items() if name not in KAFKA} == {IMAGE}


def test_every_command_is_one_that_the_command_line_takes(services: dict[str, Any]) -> None:
    variant = _read("deploy/simulated.yml")["services"]
    for one in (*services.values(), *variant.values()):
        if "command" in one:
            shown.parse(one["command"])


def test_the_broker_is_the_version_that_is_tested_and_is_published_on_loopback_only(
    services: dict[str, Any],
) -> None:
    published = [port for one in services.values() for port in one.get("ports", ())]

    assert {services[name]["image"] for name in KAFKA} == {f"${{KAFKA_IMAGE:-apache/kafka:{VERSION}}}"}
    assert published == [
        "127.0.0.1:${KAFKA_PORT:-9092}:9092",
        "127.0.0.1:${COMBEE_GATEWAY_PORT:-8750}:8750",
    ]


def test_services_wait_for_the_topics_and_the_topics_for_a_healthy_broker(services: dict[str, Any]) -> None:
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert services["kafka"]["depends_on"]["controller"] == {"condition": "service_healthy"}
    for name in ("controller", "kafka"):
        assert "healthcheck" in services[name]
        for once in ("check", "volume"):
            assert services[name]["depends_on"][once] == {"condition": "service_completed_successfully"}
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
        check = {"test": [*before, probe.replace("localhost/19092", f"127.0.0.1/{port}")]}
        assert await _exit_code(check, port) == 0
    assert await _exit_code(check, port) != 0


def test_the_image_is_built_once_or_pulled(services: dict[str, Any]) -> None:
    every = [one for name in FILES for one in _read(name)["services"].values()]

    assert [name for name, one in services.items() if "build" in one] == ["check"]
    assert sum("build" in one for one in every) == 1
    assert not any("pull_policy" in one for one in every)


def test_all_wait_for_the_check_of_all_services_which_says_what_is_missing(services: dict[str, Any]) -> None:
    (*_, script) = services["check"]["entrypoint"]
    (roles,) = re.findall(r"combee worker --check ((?:\w+ ?)+);", script)

    assert roles.split() == [role for role in services if role in {*ROLES, *FRONTS}]
    checked = services["check"]["environment"]
    for role in roles.split():  # as these services have it
        assert services[role]["environment"].items() <= checked.items(), role
        assert set(services[role].get("secrets", ())) <= set(services["check"]["secrets"])
    said = checked["IN_THE_ENVIRONMENT"]
    named = {variable.removesuffix("_FILE") for variable in KEYS} - {"COMBEE_SOURCES"}
    assert {"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", *named} <= set(re.findall(r"\$\{(\w+):\+", said))


def test_the_example_of_env_names_files_for_its_secrets_and_holds_none() -> None:
    lines = (shown.ROOT / "deploy" / ".env.example").read_text("utf-8").splitlines()
    given = dict(line.partition("=")[::2] for line in lines if line and not line.startswith("#"))

    assert given["COMBEE_API_KEY_FILE"] == "./secrets/model-key"
    assert given["COMBEE_GATEWAY_KEYS_FILE"] == "./secrets/gateway-keys.toml"
    assert not {f"COMBEE_{name.upper()}" for name in secrets()} & given.keys()


@pytest.mark.parametrize("key", ["sk-a-key", ""])
def test_one_command_makes_env_and_secrets_that_the_services_take(tmp_path: Path, key: str) -> None:
    shutil.copytree(shown.ROOT / "deploy", tmp_path / "deploy")
    command = ["sh", str(tmp_path / "deploy" / "secrets.sh")]
    said = subprocess.run(command, input=f"{key}\n", capture_output=True, text=True, check=True).stderr
    made = tmp_path / "secrets"
    keys = (made / "gateway-keys.toml").read_text()
    named = "\nCOMBEE_API_KEY_FILE=./secrets/model-key\n" in (tmp_path / ".env").read_text()
    assert named == (made / "model-key").exists() == bool(key)
    subprocess.run(command, input="another\n", capture_output=True, text=True, check=True)

    environment = (tmp_path / ".env").read_text()
    assert environment.startswith((shown.ROOT / "deploy" / ".env.example").read_text("utf-8"))
    assert made.stat().st_mode & 0o777 == 0o700
    assert keyring(GatewaySettings(gateway_keys_file=made / "gateway-keys.toml"))
    assert (made / "gateway-keys.toml").read_text() == keys  # what is there stays
    if key:
        assert (made / "model-key").read_text() == key
        assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o444}
    else:
        assert "COMBEE_API_KEY_FILE is a comment in .env now" in said


def test_an_interrupt_at_the_prompt_for_the_key_aborts(tmp_path: Path) -> None:
    shutil.copytree(shown.ROOT / "deploy", tmp_path / "deploy")
    command = ["sh", str(tmp_path / "deploy" / "secrets.sh")]
    terminal, stdin = pty.openpty()
    with subprocess.Popen(command, stdin=stdin, stderr=subprocess.PIPE, start_new_session=True) as asks:
        assert asks.stderr
        try:
            deadline = time.monotonic() + 30
            while termios.tcgetattr(stdin)[3] & termios.ECHO:
                assert time.monotonic() < deadline
            os.killpg(asks.pid, signal.SIGINT)
            assert asks.wait(30) == 130
        finally:
            asks.kill()
    assert termios.tcgetattr(stdin)[3] & termios.ECHO
    assert not (tmp_path / "secrets" / "gateway-keys.toml").exists()
    os.close(terminal)
    os.close(stdin)


def test_the_gateway_of_a_container_serves_all_its_addresses_hence_only_with_keys(
    services: dict[str, Any],
) -> None:
    assert services["gateway"]["environment"]["COMBEE_GATEWAY_HOST"] == "0.0.0.0"  # noqa: S104 - in a container
    settings = GatewaySettings(gateway_host="0.0.0.0")  # noqa: S104 - the same
    with pytest.raises(FatalError, match="COMBEE_GATEWAY_KEYS_FILE"):
        check_bind(settings, keyring(settings))


def test_services_that_ask_a_model_may_finish_their_calls(services: dict[str, Any]) -> None:
    for role in ASKING:
        assert int(services[role]["stop_grace_period"].removesuffix("s")) > MODEL_TIMEOUT_S + DRAIN_MARGIN_S


def test_listeners_agree_with_each_other_and_with_the_services(services: dict[str, Any]) -> None:
    broker = services["kafka"]["environment"]
    listening = dict(one.split("://:") for one in broker["KAFKA_LISTENERS"].split(","))
    advertised = dict(one.split("://") for one in broker["KAFKA_ADVERTISED_LISTENERS"].split(","))

    assert advertised.keys() == listening.keys() == {"INSIDE", "OUTSIDE"}
    assert services["kafka"]["ports"][0].endswith(f":{listening['OUTSIDE']}")
    controller = services["controller"]["environment"]
    assert controller["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"{controller['KAFKA_NODE_ID']}@controller:29093"
    assert controller["KAFKA_LISTENERS"] == "CONTROLLER://:29093"
    assert advertised[broker["KAFKA_INTER_BROKER_LISTENER_NAME"]] == "kafka:19092"
    assert advertised["OUTSIDE"] == "localhost:${KAFKA_PORT:-9092}"
    for role in EVERY:
        assert services[role]["environment"]["COMBEE_BOOTSTRAP_SERVERS"] == "kafka:19092"


def test_controller_and_broker_agree_on_the_session_that_a_broker_waits_for(services: dict[str, Any]) -> None:
    session = {
        services[name]["environment"]["KAFKA_BROKER_SESSION_TIMEOUT_MS"] for name in ("controller", "kafka")
    }

    assert session == {9000}  # a stall is no death
    assert services["kafka"]["entrypoint"] == [
        "bash",
        "/combee/start-broker",
        "bash",
        "/etc/kafka/docker/run",
    ]
    assert services["volume"]["entrypoint"] == ["bash", "/combee/start-broker", "--check"]


def test_every_variable_is_a_setting() -> None:
    known = {f"COMBEE_{name.upper()}" for group in GROUPS.values() for name in group.model_fields}
    files = {f"COMBEE_{name.upper()}_FILE" for name in in_files()}
    for name in (*FILES, "deploy/.env.example", "deploy/Dockerfile"):
        used = set(re.findall(r"COMBEE_[A-Z_]+", (shown.ROOT / name).read_text("utf-8")))
        assert used <= {*known, *files, "COMBEE_IMAGE", "COMBEE_USER"}, name


def test_every_setting_reaches_the_services_that_read_it_and_no_others(services: dict[str, Any]) -> None:
    given = {name for role in EVERY for name in services[role]["environment"]}
    settings = {name for group in GROUPS.values() for name in group.model_fields}
    others = OF_ANOTHER_KAFKA | OF_ONE_PROCESS | OF_AGENTS | set(secrets()) | {"gateway_keys", "salt"}

    assert {f"COMBEE_{name.upper()}" for name in settings - others} <= given
    every = {name.removeprefix("COMBEE_").lower() for name in services["topics"]["environment"]}
    for role, groups in READ_BY.items():
        wanted = {
            name for group in groups for name in (GROUPS[group].model_fields if group in GROUPS else (group,))
        }
        given = {name.removeprefix("COMBEE_").lower() for name in services[role]["environment"]}
        assert wanted - others - every == given & settings - others - every, role


def test_the_chart_gives_a_service_what_compose_gives_it(services: dict[str, Any]) -> None:
    chart = _read("deploy/helm/combee/files/variables.yaml")
    made = {"COMBEE_BOOTSTRAP_SERVERS", "COMBEE_METRICS_PORT", "COMBEE_GATEWAY_HOST", "COMBEE_GATEWAY_PORT"}
    files = {"COMBEE_SOURCES_FILE", "COMBEE_GATEWAY_KEYS_FILE", "COMBEE_EVAL_QUESTIONS"}
    short = {"OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"}
    another_kafka = {f"COMBEE_{name.upper()}" for name in OF_ANOTHER_KAFKA}

    assert chart["roles"].keys() == {*EVERY, "topics"}
    for role, groups in chart["roles"].items():
        named = {name for group in groups for name in chart["groups"][group]}
        given = set(services[role]["environment"]) - made - files
        assert named - short - another_kafka == {name.removesuffix("_FILE") for name in given}, role
        assert another_kafka <= named


def test_a_service_gets_the_secrets_that_it_needs_as_files_and_no_others(services: dict[str, Any]) -> None:
    for variable, (name, needing) in KEYS.items():
        inside = f"${{{variable}:+/run/secrets/{name}}}"
        for role in EVERY:
            assert services[role]["environment"].get(variable) == (inside if role in needing else None)
            assert (name in services[role].get("secrets", ())) == (role in needing)
        # Without one, nothing is mounted there that could be believed.
        assert _read("docker-compose.yml")["secrets"][name] == {"file": f"${{{variable}:-/dev/null}}"}
    assert not any("env_file" in one for file in FILES for one in _read(file)["services"].values())
    hidden = {f"COMBEE_{name.upper()}" for name in secrets()} | {"COMBEE_GATEWAY_KEYS"}
    assert not any(hidden & one.get("environment", {}).keys() for one in services.values())


def test_the_simulated_variant_gives_the_asking_services_the_stand_ins_loopback() -> None:
    variant = _read("deploy/simulated.yml")["services"]
    port = variant["sim"]["command"][variant["sim"]["command"].index("--port") + 1]

    assert variant.keys() == {"sim", "key", "check", "gateway", *ASKING}
    for role in (*ASKING, "check"):
        assert variant[role]["network_mode"] == "service:sim"
        assert variant[role]["environment"]["COMBEE_MODEL"] == "simulated"
        assert variant[role]["environment"]["COMBEE_BASE_URL"] == f"http://127.0.0.1:{port}/v1"


def test_the_simulated_variant_needs_no_file_of_the_user() -> None:
    base, variant = _read("docker-compose.yml")["services"], _read("deploy/simulated.yml")["services"]
    made = variant["key"]["entrypoint"][-1]

    for role in ("check", "gateway"):
        assert variant[role]["environment"]["COMBEE_GATEWAY_KEYS_FILE"] == made
        assert variant[role]["volumes"] == ["gateway-keys:/keys:ro"]
    assert variant["check"]["depends_on"]["key"] == {"condition": "service_completed_successfully"}
    for role in (*ASKING, "check"):  # nor is a key of the user's sent
        assert variant[role]["environment"]["COMBEE_API_KEY_FILE"] == ""
    assert not re.search(r"\$\{\w+:\?", json.dumps([base, variant]))


def test_no_name_of_a_host_is_given_to_a_service_in_anothers_namespace(services: dict[str, Any]) -> None:
    text = (shown.ROOT / "deploy" / "simulated.yml").read_text("utf-8")
    named = {name for name, one in services.items() if "extra_hosts" in one}

    assert named == {*ASKING, "shuffle", "check"}  # who may ask a model on this machine
    for role in (*ASKING, "check"):  # in the service itself: within an anchor Compose does not apply it
        assert re.search(rf"^  {role}:\n(?:    .*\n)*?    extra_hosts: !reset \[\]\n", text, re.MULTILINE)


def test_services_that_share_a_namespace_share_no_port_and_their_health_is_a_file() -> None:
    variant = _read("deploy/simulated.yml")["services"]
    for role in ASKING:  # any number of replicas of each
        assert variant[role]["environment"]["COMBEE_METRICS_PORT"] == 0
        ready = variant[role]["environment"]["COMBEE_READY_FILE"]
        assert variant[role]["healthcheck"]["test"] == ["CMD", "test", "-f", ready]


def test_containers_have_no_privilege_and_ours_cannot_write(services: dict[str, Any]) -> None:
    variant = _read("deploy/simulated.yml")["services"]
    for name, one in {**services, "sim": variant["sim"], "key": variant["key"]}.items():
        assert (one["cap_drop"], one["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
        assert ("cap_add" in one) == (name == "carry-over")
        if name not in KAFKA:
            assert one["read_only"] is True
        if name != "key":
            assert one.get("user") in {None, "${COMBEE_USER:-10001}"} or name == "carry-over"
    for name, heap in (("controller", "-Xmx256m"), ("kafka", "-Xmx512m")):
        assert services[name]["environment"]["KAFKA_HEAP_OPTS"] == heap
        assert int(services[name]["mem_limit"].removesuffix("m")) >= 2 * int(heap[4:-1])


def test_three_nodes_are_three_controllers_and_three_brokers_that_replicate_all(
    services: dict[str, Any],
) -> None:
    three = _read("deploy/three-nodes.yml")
    nodes = three["services"]
    controllers = {f"controller{suffix}": 100 + at for at, suffix in enumerate(("", "-2", "-3"))}
    brokers = {"kafka": 1, "kafka-2": 2, "kafka-3": 3}

    voters = ",".join(f"{number}@{name}:29093" for name, number in controllers.items())
    assert three["name"] != _read("docker-compose.yml")["name"]  # volumes of one node stay its own
    for name, number in (controllers | brokers).items():
        environment = nodes[name]["environment"]
        assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == voters
        base = services[name.partition("-")[0]]
        assert environment.get("KAFKA_NODE_ID", base["environment"]["KAFKA_NODE_ID"]) == number
    replicated = {name for name in services["kafka"]["environment"] if name.endswith(("_FACTOR", "_MIN_ISR"))}
    for name in brokers:
        environment = nodes[name]["environment"]
        assert {environment[one] for one in replicated if one.endswith("_FACTOR")} == {3}
        assert {environment[one] for one in replicated if one.endswith("_MIN_ISR")} == {2}
        assert nodes[name]["depends_on"].keys() == controllers.keys()
    for role in (*EVERY, "topics"):
        environment = nodes[role]["environment"]
        assert environment["COMBEE_BOOTSTRAP_SERVERS"] == ",".join(f"{name}:19092" for name in brokers)
        assert environment["COMBEE_REPLICATION_FACTOR"] == 3


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


def test_secrets_stay_out_of_the_image_and_of_git() -> None:
    ignored = (shown.ROOT / ".dockerignore").read_text("utf-8").splitlines()

    assert "*" in ignored
    assert not any(".env" in line for line in ignored if line.startswith("!"))
    assert {".env", "/secrets/"} <= set((shown.ROOT / ".gitignore").read_text("utf-8").splitlines())
