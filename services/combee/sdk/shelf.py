"""The playbooks that a client knows: written by the background loop alone, read by any thread without a lock."""

from combee_schemas.playbook import LATEST, Label, Playbook

EXACT_KEPT = 64
"""Old versions kept in memory."""

Place = tuple[str, str]
"""A playbook's name and a label."""


class Shelf:
    """The newest version of each playbook, where labels point, and the versions that were asked for."""

    def __init__(self) -> None:
        self._latest: dict[str, Playbook] = {}
        self._pointers: dict[Place, int] = {}
        self._held: dict[Place, Playbook] = {}
        """What a label in use last showed; it stays until the version it points at now is there."""
        self._exact: dict[tuple[str, int], Playbook] = {}
        self._restored: dict[Place, Playbook] = {}
        """What was known before this process; anything that is heard now takes its place."""
        self._complete: set[str] = set()
        self._all_complete = False

    # ---- taking

    def take(self, key: str, message: Playbook | Label | None) -> Place | None:
        """Take a record by its key; return what it changed, None if nothing: a version never goes back."""
        match message:
            case Playbook():
                if message.origin == "delete":
                    return None  # what remains for the publisher; the tombstone is its own record
                known = self._latest.get(key)
                if known is not None and known.version >= message.version:
                    return None
                self._latest[key] = message
                return key, LATEST
            case Label():
                place = message.playbook, message.label
                self._pointers[place] = message.version
                return place
        name, mark, label = key.partition("#")
        if mark:
            self._pointers.pop((name, label), None)
            self._held.pop((name, label), None)
            return name, label
        self._latest.pop(name, None)
        for place in [one for one in self._held if one[0] == name]:
            del self._held[place]
        return name, LATEST

    def keep(self, playbook: Playbook) -> None:
        """Keep a version that was fetched; the oldest of them makes way."""
        while len(self._exact) >= EXACT_KEPT:
            del self._exact[next(iter(self._exact))]
        self._exact[playbook.name, playbook.version] = playbook

    def restore(self, name: str, label: str, playbook: Playbook) -> None:
        """Take what was known before this process; it is shown until more is known."""
        self._restored[name, label] = playbook

    def complete(self, name: str | None) -> None:
        """Note that everything there was of this playbook, or of all, has been taken."""
        if name is None:
            self._all_complete = True
        else:
            self._complete.add(name)

    # ---- looking

    def is_complete(self, name: str) -> bool:
        """Return whether a playbook that is not here does not exist."""
        return self._all_complete or name in self._complete

    def missing(self, name: str, label: str) -> int | None:
        """Return the version that a label points at and that has to be fetched; None: nothing has."""
        wanted = self._pointers.get((name, label))
        if wanted is None or self.version(name, wanted) is not None:
            return None
        return wanted

    def labelled(self, name: str, label: str) -> Playbook | None:
        """Return what a label shows, or last showed."""
        found = self._latest.get(name) if label == LATEST else self._pointed(name, label)
        if found is None and not self.is_complete(name):
            return self._restored.get((name, label))
        return found

    def _pointed(self, name: str, label: str) -> Playbook | None:
        wanted = self._pointers.get((name, label))
        found = None if wanted is None else self.version(name, wanted)
        if found is not None:
            self._held[name, label] = found
        return found or self._held.get((name, label))

    def version(self, name: str, version: int) -> Playbook | None:
        """Return one version, if it is here."""
        latest = self._latest.get(name)
        if latest is not None and latest.version == version:
            return latest
        return self._exact.get((name, version))

    def labels(self, playbook: Playbook) -> tuple[str, ...]:
        """Return the labels that point at a version, in order of the alphabet."""
        latest = self._latest.get(playbook.name)
        found = {LATEST} if latest is not None and latest.version == playbook.version else set()
        # A copy: the background loop may add a label meanwhile.
        pointers = self._pointers.copy().items()
        found |= {label for (name, label), at in pointers if (name, at) == (playbook.name, playbook.version)}
        return tuple(sorted(found))
