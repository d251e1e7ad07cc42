"""A Kubernetes API server and its etcd on loopback; no kubelet, so no pod ever runs."""

import json
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from combee.assembly.local.ports import metrics_ports
from support import go_tools
from support.kubernetes import CRDS, Document, helm
from support.waiting import wait_until

HOST = "127.0.0.1"
START_S = 120.0
NAMESPACE_LABELS = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


class RefusedError(Exception):
    """The API server takes an object not, or only with a warning."""


@dataclass(frozen=True)
class ApiServer:
    """A running one, its kubeconfig, and a client of it."""

    client: httpx.Client
    kubeconfig: Path

    def namespace(self, name: str) -> None:
        """Make a name space of the strictest standard for pods; who asks for more is warned."""
        metadata = {"name": name, "labels": NAMESPACE_LABELS}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def apply(self, document: Document, namespace: str = "") -> Document:
        """Apply on the side of the server; a field that it does not know is refused, and so is what it warns of.

        Raises
        ------
        RefusedError
            If the server refuses the object or warns of it.
        """
        answer = self.client.patch(
            self._path(document["apiVersion"], document["kind"], namespace, document["metadata"]["name"]),
            params={"fieldManager": "combee-tests", "fieldValidation": "Strict"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(document),
        )
        if answer.is_error or "warning" in answer.headers:
            raise RefusedError(answer.headers.get("warning") or answer.json()["message"])
        applied: Document = answer.json()
        return applied

    def objects(self, api_version: str, kind: str, namespace: str = "") -> dict[str, Document]:
        """Return objects by their name."""
        answer = self.client.get(self._path(api_version, kind, namespace)).raise_for_status()
        return {item["metadata"]["name"]: item for item in answer.json()["items"]}

    def helm(self, *arguments: str) -> str:
        """Run Helm against this server.

        Raises
        ------
        RefusedError
            If it fails.
        """
        command = [str(helm()), *arguments, "--kubeconfig", str(self.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout

    def _path(self, api_version: str, kind: str, namespace: str, name: str = "") -> str:
        root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        resources = self.client.get(root).raise_for_status().json()["resources"]
        (plural,) = (each["name"] for each in resources if each["kind"] == kind and "/" not in each["name"])
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{within}/{plural}" + (f"/{name}" if name else "")


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run one, with the definitions of the operators' objects that the chart makes."""
    etcd, program = go_tools.kubernetes_programs("etcd", "kube-apiserver")
    folder.mkdir()
    etcd_port, peer_port, port = (int(free or 0) for free in metrics_ports(0, HOST, 3))
    token, key = secrets.token_hex(16), folder / "accounts.pem"
    key.write_bytes(_private_key())
    (folder / "tokens.csv").write_text(f"{token},tests,tests,system:masters\n")
    with ExitStack() as stack:
        urls = f"http://{HOST}:{etcd_port}", f"http://{HOST}:{peer_port}"
        stack.enter_context(_process(folder / "etcd.log", *_etcd(etcd, folder / "etcd", *urls)))
        command = _kube_apiserver(program, folder, port, urls[0])
        process = stack.enter_context(_process(folder / "kube-apiserver.log", *command))
        certificate = folder / "certificates" / "apiserver.crt"
        wait_until(lambda: process.poll() is not None or certificate.exists(), START_S, "the API server")
        assert process.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
        trust = ssl.create_default_context(cafile=str(certificate))
        headers = {"Authorization": f"Bearer {token}"}
        address = f"https://{HOST}:{port}"
        client = stack.enter_context(
            httpx.Client(base_url=address, verify=trust, headers=headers, timeout=60)
        )
        wait_until(lambda: _is_ready(client), START_S, "the API server")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(address, str(certificate), token)))
        kubeconfig.chmod(0o600)
        server = ApiServer(client, kubeconfig)
        _define_operators_objects(server)
        yield server


@contextmanager
def _process(log: Path, *command: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _etcd(program: Path, data: Path, clients: str, peers: str) -> tuple[str | Path, ...]:
    listen = (f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}")
    among = (f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}")
    # Lost with the machine is lost with the test: syncing to the disk takes most of its time.
    return (
        program,
        f"--data-dir={data}",
        *listen,
        *among,
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    )


def _kube_apiserver(program: Path, folder: Path, port: int, etcd: str) -> tuple[str | Path, ...]:
    options = {
        "etcd-servers": etcd,
        "bind-address": HOST,
        "advertise-address": HOST,
        "secure-port": port,
        "cert-dir": folder / "certificates",
        "service-cluster-ip-range": "10.0.0.0/24",
        "authorization-mode": "RBAC",
        "token-auth-file": folder / "tokens.csv",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": folder / "accounts.pem",
        "service-account-signing-key-file": folder / "accounts.pem",
        # Without a controller manager there is no default account that pods could have.
        "disable-admission-plugins": "ServiceAccount",
    }
    return (program, *(f"--{name}={value}" for name, value in options.items()))


def _private_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _kubeconfig(address: str, certificate: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {"server": address, "certificate-authority": certificate}}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False


def _define_operators_objects(server: ApiServer) -> None:
    for module, path in CRDS.values():
        definition = yaml.safe_load((go_tools.source(module, path) / path).read_text("utf-8"))
        server.apply(definition)
        api = f"/apis/{definition['spec']['group']}/{definition['spec']['versions'][0]['name']}"
        wait_until(partial(_serves, server.client, api), START_S, f"the API {api}")


def _serves(client: httpx.Client, api: str) -> bool:
    return client.get(api).is_success
