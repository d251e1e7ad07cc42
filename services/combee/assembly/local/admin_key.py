"""The key for commands over HTTP when a judge is on: ``combee up`` writes it to a file for its owner alone."""

import hashlib
import http.client
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from combee.adapters.ports import FatalError
from combee.assembly.local.stack_file import data_dir, of_brokers
from combee.process.settings.loading import Settings
from combee.process.trusted_files import read_trusted

LINKS = "/v1/session-links"
LINK_TIMEOUT_S = 10.0
KEY_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminKey:
    """A key and its file."""

    path: Path
    key: str = field(repr=False)

    @property
    def gateway_keys(self) -> str:
        """The gateway's setting with the key's hash. Reading and publishing still need no key."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()
        return (
            'anybody = ["reflections:write", "playbooks:read"]\n'
            f'[[keys]]\nname = "admin"\nhash = "sha256:{digest}"\n'
            'scopes = ["reflections:write", "playbooks:read", "playbooks:admin"]\n'
        )


def admin_key(settings: Settings) -> AdminKey:
    """Return the key for these settings' brokers; create it if there is none.

    Raises
    ------
    SettingsError
        If others may write its file or folder.
    OSError
        If it cannot be read or written.
    """
    folder = data_dir(settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"admin-key-{of_brokers(settings)}"
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        path.chmod(0o600)
    else:
        with os.fdopen(file, "w") as new:
            new.write(f"{secrets.token_urlsafe(KEY_BYTES)}\n")
    key = read_trusted(path).strip()
    if not key:
        raise FatalError(f"{path} holds no key: remove the file, and a new key is made")
    return AdminKey(path=path, key=key)


def dashboard_link(served: str, key: AdminKey) -> str:
    """Return a link that opens the dashboard once, in a browser that may then give commands.

    Raises
    ------
    OSError
        If the gateway returns none.
    """
    address = urlsplit(served)
    asked = http.client.HTTPConnection(address.hostname or "", address.port, timeout=LINK_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key.key}", "Content-Type": "application/json"}
    try:
        asked.request("POST", LINKS, body="{}", headers=headers)
        answer = asked.getresponse()
        content = answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"the gateway at {served} gave no link: {type(error).__name__}") from error
    finally:
        asked.close()
    if answer.status != http.client.OK:
        raise OSError(f"the gateway at {served} gave no link: status {answer.status}")
    return f"{served}{json.loads(content)['path']}"
