"""The playbooks a client knows, in memory and on disk."""

import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from pydantic import ValidationError

from combee.adapters.ports import ConfigurationError
from combee.core.gate.canary import terms_of
from combee.core.gate.gate import label_read
from combee.sdk.logs import LogOnce
from combee_schemas.canary import CanaryTerms
from combee_schemas.playbook import CANDIDATE, LATEST, NO_LABEL, PRODUCTION, Label, Playbook

OLD_VERSIONS_KEPT = 64
"""Old versions kept in memory."""

LabelKey = tuple[str, str]
"""A playbook's name and a label."""


class PlaybookCache:
    """The newest version of each playbook, the labels, and requested old versions.

    Only the background loop writes; any thread reads without a lock.
    """

    def __init__(self) -> None:
        self._latest: dict[str, Playbook] = {}
        self._pointers: dict[LabelKey, int] = {}
        self._labels: dict[LabelKey, Label] = {}
        self._last_shown: dict[LabelKey, Playbook] = {}
        """The version that a label in use last showed, kept until the label's present version is known."""
        self._old_versions: dict[tuple[str, int], Playbook] = {}
        self._restored: dict[LabelKey, Playbook] = {}
        """Playbooks saved by an earlier process; anything newer replaces them."""
        self._complete: set[str] = set()
        self._all_complete = False

    # ---- writing

    def apply(self, key: str, message: Playbook | Label | None) -> LabelKey | None:
        """Apply a record by its key; return the changed label, None without a change, as versions never go back."""
        match message:
            case Playbook():
                if message.origin == "delete":
                    return None  # kept for the publisher; agents get the deletion as a tombstone
                known = self._latest.get(key)
                if known is not None and known.version >= message.version:
                    return None
                if message.gated and known is not None and not known.gated:
                    # The gate was turned on: the version read so far stays until the label arrives.
                    self._last_shown.setdefault((key, PRODUCTION), known)
                self._latest[key] = message
                return key, LATEST
            case Label():
                label_key = message.playbook, message.label
                self._pointers[label_key] = message.version
                self._labels[label_key] = message
                return label_key
        name, mark, label = key.partition("#")
        if mark:
            self._pointers.pop((name, label), None)
            self._labels.pop((name, label), None)
            self._last_shown.pop((name, label), None)
            return name, label
        self._latest.pop(name, None)
        for shown in [shown for shown in self._last_shown if shown[0] == name]:
            del self._last_shown[shown]
        return name, LATEST

    def add_old_version(self, playbook: Playbook) -> None:
        """Keep a fetched version; drop the oldest one if there are too many."""
        while len(self._old_versions) >= OLD_VERSIONS_KEPT:
            del self._old_versions[next(iter(self._old_versions))]
        self._old_versions[playbook.name, playbook.version] = playbook

    def restore(self, name: str, label: str, playbook: Playbook) -> None:
        """Add a playbook saved by an earlier process, shown until a newer one is known."""
        self._restored[name, label] = playbook

    def mark_complete(self, name: str | None) -> None:
        """Note that all existing records of this playbook, or of all playbooks, have been applied."""
        if name is None:
            self._all_complete = True
        else:
            self._complete.add(name)

    # ---- reading

    def is_complete(self, name: str) -> bool:
        """Return whether a playbook missing here does not exist."""
        return self._all_complete or name in self._complete

    def label_read(self, name: str, label: str) -> str:
        """Return the label to read for a requested ``label`` or none."""
        return label_read(label, self._labels.get((name, PRODUCTION)), self._latest.get(name))

    def canary(self, name: str) -> CanaryTerms | None:
        """Return the terms of the playbook's canary, None without a canary or a gate."""
        is_gated = self.label_read(name, NO_LABEL) == PRODUCTION
        return terms_of(self._labels.get((name, CANDIDATE))) if is_gated else None

    def missing(self, name: str, label: str) -> int | None:
        """Return the label's version if it has to be fetched, else None."""
        wanted = self._pointers.get((name, self.label_read(name, label)))
        if not wanted or self.version(name, wanted) is not None:
            return None
        return wanted

    def labelled(self, name: str, label: str) -> Playbook | None:
        """Return the version that a label shows or last showed; ``NO_LABEL`` is the version that agents read."""
        read = self.label_read(name, label)
        playbook = self._latest.get(name) if read == LATEST else self._pointed(name, read)
        if playbook is None and not self.is_complete(name):
            return self._restored.get((name, label))
        return playbook

    def _pointed(self, name: str, label: str) -> Playbook | None:
        wanted = self._pointers.get((name, label))
        playbook = None if wanted is None else self.version(name, wanted)
        if wanted == 0:  # a gate that no version has passed yet: agents read nothing
            self._last_shown.pop((name, label), None)
        if playbook is not None:
            self._last_shown[name, label] = playbook
        return playbook or self._last_shown.get((name, label))

    def version(self, name: str, version: int) -> Playbook | None:
        """Return one version, None if it is not cached."""
        latest = self._latest.get(name)
        if latest is not None and latest.version == version:
            return latest
        return self._old_versions.get((name, version))

    def labels(self, playbook: Playbook) -> tuple[str, ...]:
        """Return the labels that point at a version, in order of the alphabet."""
        latest = self._latest.get(playbook.name)
        labels = {LATEST} if latest is not None and latest.version == playbook.version else set()
        # A copy: the background loop may add a label meanwhile.
        pointers = self._pointers.copy().items()
        labels |= {label for (name, label), at in pointers if (name, at) == (playbook.name, playbook.version)}
        return tuple(sorted(labels))


class DiskCache:
    """One JSON file per playbook and label, so that a start without a broker has the last known text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log_once = LogOnce()

    def _path(self, name: str, label: str) -> Path:
        # The version read without a label is saved under the name of the label ``latest``.
        label = {NO_LABEL: LATEST, LATEST: f"@{LATEST}"}.get(label, label)
        return self._folder / f"{quote(name, safe='')}@{quote(label, safe='')}.json"

    def save(self, name: str, label: str, playbook: Playbook | None) -> None:
        """Replace a file atomically, or delete it for None, a deleted playbook. A failure is logged once."""
        try:
            if playbook is None:
                self._path(name, label).unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".part", delete=False) as part:
                part.write(playbook.model_dump_json().encode())
            Path(part.name).replace(self._path(name, label))
        except OSError as error:
            self._log_once.warn("save", "the playbook cache cannot be written (%s); check cache_dir", error)

    def load(self, name: str, label: str) -> Playbook | None:
        """Return the saved playbook, None if there is no usable one that only this user can have written."""
        try:
            playbook = Playbook.model_validate_json(_read(self._path(name, label)))
        except FileNotFoundError:
            return None
        except ConfigurationError as error:
            self._log_once.warn("trust", "a cached playbook is ignored: %s; check cache_dir", error)
            return None
        except (OSError, ValidationError) as error:
            trouble = type(error).__name__
            self._log_once.warn("load", "a cached playbook cannot be read and is ignored (%s)", trouble)
            return None
        return playbook if playbook.name == name else None


def _read(path: Path) -> bytes:
    """Return a file's content; refuse the file of another user, who can write a shared folder such as ``/tmp``."""
    with suppress(ModuleNotFoundError):
        from combee.process.trusted_files import check_trusted  # noqa: PLC0415 - Unix only

        check_trusted(path)
    return path.read_bytes()
