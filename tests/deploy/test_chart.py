"""The Helm chart, rendered for each file of its ci folder and held against the schemas of an API server."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from combee.assembly.compose import FRONTS, JUDGING, ROLES
from support.kubernetes import CHART, ChartError, Document, fetch, problems, rendered

pytestmark = pytest.mark.timeout(600)
VALUES = sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml"))
WORKLOADS = ("Deployment", "StatefulSet")
VERIFYING = {"reflect", "shuffle", "control", "gateway"}
ADDRESS = ("kafka.bootstrapServers=kafka:9092",)


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    try:
        fetch()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        pytest.skip(f"Helm and the schemas cannot be fetched: {error}")


def values(name: str) -> str:
    return str(CHART / "ci" / f"{name}-values.yaml")


def of_kind(documents: list[Document], *kinds: str) -> dict[str, Document]:
    """Return documents by their service's name."""
    return {
        document["metadata"]["name"].removeprefix("combee-"): document
        for document in documents
        if document["kind"] in kinds
    }


def pod(workload: Document) -> dict[str, Any]:
    template: dict[str, Any] = workload["spec"]["template"]["spec"]
    return template


def containers(documents: list[Document]) -> Iterator[dict[str, Any]]:
    for workload in of_kind(documents, *WORKLOADS, "Job").values():
        yield from pod(workload)["containers"]


def environment(workload: Document) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in pod(workload)["containers"][0]["env"]
    }


def mounted(workload: Document) -> dict[str, tuple[str, str]]:
    """Return a service's files by their paths: the Secret or ConfigMap of each, and its key there."""
    volumes = {volume["name"]: volume for volume in pod(workload)["volumes"]}
    files = {}
    for mount in pod(workload)["containers"][0]["volumeMounts"]:
        volume = volumes[mount["name"]]
        holder = volume.get("secret") or volume.get("configMap") or {}
        for item in holder.get("items", ()):
            name = holder.get("secretName") or holder["name"]
            files[f"{mount['mountPath']}/{item['path']}"] = (name, item["key"])
    return files


@pytest.mark.parametrize("name", VALUES)
def test_an_api_server_takes_all_of_it(name: str) -> None:
    documents = rendered(values(name))

    assert documents
    assert [problem for document in documents for problem in problems(document)] == []


def test_a_field_that_no_schema_knows_is_a_problem() -> None:
    for document in rendered(values("scaled")):
        if document["kind"] in {"Deployment", "ServiceMonitor", "ScaledObject"}:
            document["spec"]["misspelt"] = True
            assert problems(document), document["kind"]


@pytest.mark.parametrize("name", VALUES)
def test_every_role_runs_once_and_has_a_budget(name: str) -> None:
    documents = rendered(values(name))
    roles = {*ROLES, *(() if name == "small" else FRONTS), *(JUDGING if name == "scaled" else ())}

    assert of_kind(documents, *WORKLOADS).keys() == roles
    assert of_kind(documents, "PodDisruptionBudget").keys() == roles


@pytest.mark.parametrize("name", VALUES)
def test_no_container_is_root_writes_or_has_a_privilege_and_no_value_is_a_secret(name: str) -> None:
    documents = rendered(values(name))
    for workload in of_kind(documents, *WORKLOADS, "Job").values():
        assert pod(workload)["securityContext"]["runAsNonRoot"]
        assert pod(workload)["automountServiceAccountToken"] is False
    for container in containers(documents):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        for variable in container["env"]:
            if re.search(r"PASSWORD|API_KEY|GATEWAY_KEYS$", variable["name"]):
                assert variable["valueFrom"]["secretKeyRef"]


def test_probes_and_drain_are_those_of_the_services() -> None:
    for role, workload in of_kind(rendered(values("address")), *WORKLOADS).items():
        (container,) = pod(workload)["containers"]
        assert container["args"] == ["worker", role]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert pod(workload)["terminationGracePeriodSeconds"] >= (60 if role == "gateway" else 150)


def test_no_rollout_waits_for_a_replica_that_has_no_partition() -> None:
    for role, workload in of_kind(rendered(values("address")), "Deployment").items():
        surge = workload["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        assert surge == (1 if role == "gateway" else 0)


def test_a_stateful_replica_keeps_its_number_and_no_other_one_has_any() -> None:
    workloads = of_kind(rendered(values("address")), *WORKLOADS)
    numbered = {role for role, workload in workloads.items() if "COMBEE_SLOT" in environment(workload)}

    assert numbered == {"publish", "shuffle"}
    assert {role for role, one in workloads.items() if one["kind"] == "StatefulSet"} == numbered


def test_the_judge_of_candidates_gets_its_questions_the_models_key_and_the_way_to_it() -> None:
    documents = rendered(values("scaled"))
    judge = of_kind(documents, "Deployment")["evaluate"]
    env = environment(judge)
    ways = of_kind(documents, "NetworkPolicy")["evaluate"]["spec"]["egress"]

    assert mounted(judge)[env["COMBEE_EVAL_QUESTIONS"]] == ("combee-questions", "questions.jsonl")
    assert env["OPENAI_API_KEY"]["secretKeyRef"] == {"name": "model", "key": "api-key"}
    assert env["COMBEE_GATE"] == "evaluate"
    assert 443 in {port["port"] for way in ways for port in way["ports"]}


def test_services_that_verify_sources_get_the_secret_with_their_file_and_no_others_do() -> None:
    workloads = of_kind(rendered(values("secured")), *WORKLOADS)
    named = {
        role: mounted(workload)[environment(workload)["COMBEE_SOURCES_FILE"]]
        for role, workload in workloads.items()
        if "COMBEE_SOURCES_FILE" in environment(workload)
    }

    assert named == dict.fromkeys(VERIFYING, ("combee-sources", "sources.toml"))
    assert "combee-sources" not in json.dumps([workloads[role] for role in workloads.keys() - VERIFYING])
    without = of_kind(rendered(values("address")), *WORKLOADS)
    assert not any("COMBEE_SOURCES_FILE" in environment(workload) for workload in without.values())


def test_a_service_gets_the_settings_and_secrets_that_it_reads_and_what_combee_does_not_know() -> None:
    workloads = of_kind(
        rendered(
            values("scaled"),
            "settings.COMBEE_PLAYBOOK_TOKENS=8000",
            "settings.HTTPS_PROXY=http://proxy:3128",
            "secretSettings.AWS_SESSION_TOKEN.secret=aws",
            "secretSettings.AWS_SESSION_TOKEN.key=token",
            "secretSettings.AWS_SESSION_TOKEN.roles={reflect}",
        ),
        *WORKLOADS,
        "Job",
    )
    having = {
        name: {role for role, workload in workloads.items() if name in environment(workload)}
        for name in (
            "OPENAI_API_KEY",
            "AWS_SESSION_TOKEN",
            "COMBEE_PLAYBOOK_TOKENS",
            "HTTPS_PROXY",
            "COMBEE_MODEL",
        )
    }

    assert having == {
        "OPENAI_API_KEY": {"reflect", "scan", "evaluate"},
        "AWS_SESSION_TOKEN": {"reflect"},
        "COMBEE_PLAYBOOK_TOKENS": {"shuffle", "publish", "gateway"},
        "HTTPS_PROXY": set(workloads),
        "COMBEE_MODEL": set(workloads),
    }


def test_an_image_is_named_by_its_digest_where_one_is_given() -> None:
    digest = f"sha256:{'a' * 64}"
    for container in containers(rendered(values("strimzi"), f"image.digest={digest}")):
        assert container["image"] == f"registry.example.org/combee@{digest}"
    for container in containers(rendered(values("strimzi"))):
        assert container["image"] == "registry.example.org/combee:0.1.0"


def test_with_strimzi_each_service_is_a_user_of_its_own() -> None:
    documents = rendered(values("strimzi"))
    jobs = of_kind(documents, "Job")
    for role, workload in of_kind(documents, *WORKLOADS).items():
        env = environment(workload)
        assert env["COMBEE_BOOTSTRAP_SERVERS"] == "events-kafka-bootstrap:9093"
        assert env["COMBEE_SASL_USERNAME"] == f"combee-{role}"
        assert env["COMBEE_SASL_PASSWORD"]["secretKeyRef"] == {"name": f"combee-{role}", "key": "password"}
        assert env["COMBEE_SSL_CAFILE"] == "/etc/combee/kafka/ca.crt"
    assert environment(jobs["topics"])["COMBEE_SASL_USERNAME"] == "combee-operators"


def test_scaling_asks_for_the_lag_in_seconds_and_leaves_the_count_to_keda() -> None:
    documents = rendered(values("scaled"))
    scaled = of_kind(documents, "ScaledObject")
    (endpoint,) = of_kind(documents, "ServiceMonitor")["combee"]["spec"]["endpoints"]

    assert scaled.keys() == {"reflect", "scan"}
    for role, one in scaled.items():
        query = one["spec"]["triggers"][0]["metadata"]["query"]
        assert query == f'max(combee_lag_seconds{{service="{role}", namespace="learning"}})'
        assert "replicas" not in of_kind(documents, "Deployment")[role]["spec"]
        assert one["spec"]["minReplicaCount"] >= 1  # services tell their lag themselves
    assert endpoint["honorLabels"]  # else "service" would be the name of the Service


def test_only_services_that_ask_the_model_reach_beyond_kafka() -> None:
    policies = of_kind(rendered(values("secured")), "NetworkPolicy")
    reached = {
        role: {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        for role, policy in policies.items()
    }

    assert {role for role, ports in reached.items() if 443 in ports} == {"reflect", "scan"}
    assert all(ports - {443} == {53, 9094} for ports in reached.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "kafka.bootstrapServers or kafka.strimzi.cluster is needed"),
        ((*ADDRESS, "kafka.securityProtocol=SASL_SSL"), "kafka.sasl.username is needed with SASL"),
        ((*ADDRESS, "roles.scan.autoscale.enabled=true"), "keda.prometheus is needed"),
        (
            (*ADDRESS, "secretSettings.OTHER_KEY.secret=other", "secretSettings.OTHER_KEY.key=key"),
            "secretSettings.OTHER_KEY: Combee reads no such setting; name the services",
        ),
    ],
)
def test_what_is_missing_is_said(given: tuple[str, ...], said: str) -> None:
    with pytest.raises(ChartError, match=re.escape(said)):
        rendered(*given)


def test_the_folder_of_values_is_not_empty() -> None:
    assert Path(values("address")).is_file()
    assert len(VALUES) == 5
