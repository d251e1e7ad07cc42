"""The Helm chart on an API server of Kubernetes: taken, read back, upgraded and uninstalled; no pod runs."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support import go_tools
from support.api_server import ApiServer, RefusedError, api_server
from support.kubernetes import CHART, Document, fetch, rendered

pytestmark = pytest.mark.timeout(1200)
VALUES = sorted(path.stem.removesuffix("-values") for path in (CHART / "ci").glob("*-values.yaml"))
KINDS = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Service"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("keda.sh/v1alpha1", "ScaledObject"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, machine_env: Mapping[str, str]) -> Iterator[ApiServer]:
    try:
        fetch()
        build = machine_env.get("COMBEE_TEST_CLUSTER") == "build"
        go_tools.kubernetes_programs(*go_tools.PROGRAMS, build=build)
    except (OSError, RuntimeError) as error:
        pytest.skip(f"{error}: COMBEE_TEST_CLUSTER=build make test-deploy builds one (Go, some ten minutes)")
    with api_server(tmp_path_factory.mktemp("cluster") / "server") as running:
        yield running


def values(name: str) -> str:
    return str(CHART / "ci" / f"{name}-values.yaml")


def missing(wanted: Any, there: Any, path: str = "") -> list[str]:
    """Return what was applied and is not there."""
    if isinstance(wanted, dict):
        return [
            problem
            for name, value in wanted.items()
            for problem in missing(value, there.get(name) if there else None, f"{path}/{name}")
        ]
    if isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        return [
            problem
            for number, pair in enumerate(zip(wanted, there, strict=True))
            for problem in missing(*pair, f"{path}/{number}")
        ]
    is_nothing = wanted == [] and there is None  # the server leaves empty lists out
    return [] if wanted == there or is_nothing else [f"{path}: {wanted!r} became {there!r}"]


@pytest.mark.parametrize("name", VALUES)
def test_the_server_takes_every_object_without_a_warning_and_keeps_what_it_says(
    server: ApiServer, name: str
) -> None:
    server.namespace(name)
    documents = rendered(values(name), namespace=name)
    for document in documents:
        server.apply(document, name)
    kept = {
        (api_version, kind): server.objects(api_version, kind, name)
        for api_version, kind in {(document["apiVersion"], document["kind"]) for document in documents}
    }
    assert [
        problem
        for document in documents
        for problem in missing(document, found(document, kept), document["kind"])
    ] == []


def found(document: Document, kept: Mapping[tuple[str, str], Mapping[str, Document]]) -> Document:
    # A list does not repeat what kind its items are.
    names = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    return {**kept[document["apiVersion"], document["kind"]][document["metadata"]["name"]], **names}


def test_the_server_refuses_a_field_it_does_not_know_and_warns_of_rights(server: ApiServer) -> None:
    server.namespace("refused")
    for document in rendered(values("scaled"), namespace="refused"):
        if document["kind"] in {"Deployment", "ServiceMonitor", "ScaledObject"}:
            document["spec"]["misspelt"] = True
            with pytest.raises(RefusedError, match="misspelt"):
                server.apply(document, "refused")
    (workload, *_) = (one for one in rendered(values("small")) if one["kind"] == "Deployment")
    workload["spec"]["template"]["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = (
        True
    )
    workload["metadata"]["namespace"] = "refused"
    with pytest.raises(RefusedError, match="restricted"):
        server.apply(workload, "refused")


def test_a_release_is_installed_upgraded_to_other_values_and_uninstalled(server: ApiServer) -> None:
    server.namespace("released")
    release = ("combee", str(CHART), "--namespace", "released", "--no-hooks", "--values")
    server.helm("install", *release, values("address"))
    assert objects(server) == made("address")
    server.helm("upgrade", *release, values("scaled"))
    assert objects(server) == made("scaled")
    server.helm("upgrade", *release, values("small"))
    assert objects(server) == made("small")
    server.helm("rollback", "combee", "1", "--namespace", "released", "--no-hooks")
    assert objects(server) == made("address")
    server.helm("uninstall", "combee", "--namespace", "released", "--no-hooks")
    assert objects(server) == set()


def objects(server: ApiServer) -> set[tuple[str, str]]:
    """Return what is there and not on its way out: workloads wait for a garbage collector that does not run here."""
    return {
        (kind, name)
        for api_version, kind in KINDS
        for name, each in server.objects(api_version, kind, "released").items()
        if "deletionTimestamp" not in each["metadata"]
    }


def made(name: str) -> set[tuple[str, str]]:
    return {
        (document["kind"], document["metadata"]["name"])
        for document in rendered(values(name), namespace="released")
        if document["kind"] != "Job"
    }
