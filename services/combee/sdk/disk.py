"""Playbooks on disk, so that an agent that starts while the broker is away has the last known text."""

import tempfile
from pathlib import Path
from urllib.parse import quote

from pydantic import ValidationError

from combee.sdk.logs import Once
from combee_schemas.playbook import Playbook


class Disk:
    """A folder with one JSON file per playbook and label; each is replaced as a whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._once = Once()

    def _path(self, name: str, label: str) -> Path:
        return self._folder / f"{quote(name, safe='')}@{quote(label, safe='')}.json"

    def save(self, name: str, label: str, playbook: Playbook | None) -> None:
        """Write a version; None: it was deleted. A disk that is full or not ours is told of once."""
        try:
            if playbook is None:
                self._path(name, label).unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part", delete=False) as part:
                part.write(playbook.model_dump_json().encode())
            Path(part.name).replace(self._path(name, label))
        except OSError as error:
            self._once.warn("save", "the playbook cache cannot be written (%s); check cache_dir", error)

    def load(self, name: str, label: str) -> Playbook | None:
        """Return what was saved; None if there is nothing usable."""
        try:
            found = Playbook.model_validate_json(self._path(name, label).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            trouble = type(error).__name__
            self._once.warn("load", "a cached playbook cannot be read and is passed over (%s)", trouble)
            return None
        return found if found.name == name else None
