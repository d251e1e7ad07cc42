"""Versions: rising by one in history, each batch in exactly one, and the snapshot equal to the last of them."""

from dataclasses import dataclass, field
from hashlib import blake2b

from combee.core.log.ledger.batches import Batches
from combee.core.log.ledger.checkpoint import KnownSnapshot, Line
from combee.core.log.ledger.report import Findings
from combee.core.names import identity
from combee_schemas.playbook import Playbook

CONTAINED_KEPT = 8
"""Number of newest versions kept per line: batches rest on one of them; an older one requires a full reading."""


def fingerprint(playbook: Playbook) -> bytes:
    """Return what equal snapshots share, independent of their places in history."""
    return blake2b(playbook.model_dump_json(exclude={"history_offset"}).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The newest record of a playbook in ``playbooks``."""

    where: str
    partition: int
    version: int
    history_offset: int
    content: bytes


@dataclass(slots=True, kw_only=True)
class Versions:
    """Snapshots first, then history in order."""

    findings: Findings
    batches: Batches
    behind: list[str] = field(default_factory=list)
    """Checks that would need records before the checkpoint."""
    cut: frozenset[int] = frozenset()
    """Partitions whose first versions are not retained."""
    published: dict[str, int] = field(default_factory=dict)
    """Playbook → last batch with a version."""
    ended: dict[str, int] = field(default_factory=dict)
    """Per line that is not, or no longer, a branch: the last batch in its snapshot."""
    applied: dict[tuple[str, int], str] = field(default_factory=dict)
    """(playbook, sequence) → the version that applies it, in words."""
    _snapshots: dict[str, Snapshot] = field(default_factory=dict)
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Playbook → last version and its batch sequence."""
    _contains: dict[tuple[str, int], int] = field(default_factory=dict)
    """(playbook, version) → last batch in it."""
    _settled: dict[str, int] = field(default_factory=dict)
    """Playbook → last version in history before the snapshots were read."""

    _restored: bool = False

    def restore(self, name: str, known: Line) -> None:
        """Continue a line from a checkpoint, whose versions are all settled."""
        self._restored = True
        if known.version is not None:
            self._last[name] = known.version
            self._settled[name] = known.version[0]
        self._contains |= {(name, version): sequence for version, sequence in known.contained}
        if known.published:
            self.published[name] = known.published
        if known.ended is not None:
            self.ended[name] = known.ended
        if known.snapshot is not None:
            content = bytes.fromhex(known.snapshot.content)
            self._snapshots[name] = Snapshot(**{**dict(known.snapshot), "content": content})

    def lines(self) -> set[str]:
        """Return all lines that have a version."""
        return self._last.keys() | self._snapshots.keys() | self.published.keys() | self.ended.keys()

    def line(self, name: str) -> dict[str, object]:
        """Return a line's part of a checkpoint."""
        version, snapshot = self._last.get(name), self._snapshots.get(name)
        newest = range(max(1, version[0] - CONTAINED_KEPT + 1), version[0] + 1) if version else ()
        return {
            "version": version,
            "contained": tuple((n, self._contains[name, n]) for n in newest if (name, n) in self._contains),
            "published": self.published.get(name, 0),
            "ended": self.ended.get(name),
            "snapshot": snapshot
            and KnownSnapshot(
                where=snapshot.where,
                partition=snapshot.partition,
                version=snapshot.version,
                history_offset=snapshot.history_offset,
                content=snapshot.content.hex(),
            ),
        }

    def snapshot(self, partition: int, offset: int, name: str, playbook: Playbook | None) -> None:
        """Add one record of ``playbooks``; None is a tombstone."""
        known = self._snapshots.pop(name, None)
        if playbook is None:
            return
        where = f"playbooks[{partition}]@{offset}"
        if known is not None and playbook.version <= known.version:
            text = f"{where}: version {playbook.version} of {name} follows version {known.version}"
            self.findings.add("snapshot version", text)
        self._snapshots[name] = Snapshot(
            where=where,
            partition=partition,
            version=playbook.version,
            history_offset=playbook.history_offset,
            content=fingerprint(playbook),
        )
        self.published[name] = max(self.published.get(name, 0), playbook.batch_sequence)
        if playbook.branch is None:
            self.ended[name] = playbook.batch_sequence
        else:
            self.ended.pop(name, None)

    def version(self, partition: int, offset: int, playbook: Playbook, *, settled: bool) -> None:
        """Add and judge one record of ``history``; ``settled``: it preceded the reading of the snapshots."""
        name = playbook.name
        where = f"history[{partition}]@{offset}: version {playbook.version} of {name}"
        if name not in self._last and partition in self.cut:
            fresh = playbook.batch_sequence - (playbook.origin == "batch")
            self._last[name] = (playbook.version - 1, fresh)
        last, sequence = self._last.get(name, (0, 0))
        if playbook.version != last + 1:
            self.findings.add("version", f"{where} follows version {last}")
        self._published(where, playbook, sequence)
        self._contains[name, playbook.version] = playbook.batch_sequence
        if playbook.origin == "batch":
            self._manifest(where, partition, playbook)
            self._base(where, playbook)
        self._same_as_snapshot(where, offset, playbook)
        self._last[name] = (max(last, playbook.version), max(sequence, playbook.batch_sequence))
        self.published[name] = max(self.published.get(name, 0), self._last[name][1])
        if settled:
            self._settled[name] = self._last[name][0]

    def _published(self, where: str, playbook: Playbook, last: int) -> None:
        sequence = playbook.batch_sequence
        if playbook.origin != "batch":
            if sequence != last:
                text = f"{where} ({playbook.origin}) claims batch {sequence}, the last published is {last}"
                self.findings.add("published", text)
        elif sequence <= last:
            self.findings.add("published", f"{where} publishes batch {sequence} again, after batch {last}")
        elif sequence != last + 1:
            self.findings.add("published", f"{where} publishes batch {sequence} right after batch {last}")

    def _manifest(self, where: str, partition: int, playbook: Playbook) -> None:
        name, sequence = playbook.name, playbook.batch_sequence
        self.applied.setdefault((name, sequence), where)
        size = self.batches.sizes.get((name, sequence))
        if self.batches.is_missing(partition, name, sequence):
            self.findings.add("published", f"{where} publishes batch {sequence}, which has no manifest")
        plan = playbook.batch.plan if playbook.batch else None
        counted, called = (plan.reflections, plan.batch_id) if plan else (0, "nothing")
        if size not in (None, counted):
            self.findings.add(
                "published", f"{where} counts {counted} reflections, batch {sequence} has {size}"
            )
        if called != identity.batch_id(name, sequence):
            self.findings.add("published", f"{where} calls batch {sequence} {called}")

    def _base(self, where: str, playbook: Playbook) -> None:
        """Judge the batch's base version and stated staleness."""
        name, sequence = playbook.name, playbook.batch_sequence
        base = self.batches.bases.get((name, sequence))
        if base is None or playbook.batch is None:
            return
        plan = playbook.batch.plan
        version, contained = base
        if self._restored and version and (name, version) not in self._contains:
            self.behind.append(f"{where} rests on version {version}")
        known = self._contains.get((name, version), contained if version else 0)
        if known != contained:
            text = f"{where} rests on version {version}, which contains batch {known} and not {contained}"
            self.findings.add("base", text)
        if (plan.base_version, plan.base_sequence) != (version, contained):
            text = f"{where} claims to be {plan.staleness} batches behind version {plan.base_version}"
            self.findings.add("base", f"{text}, its manifest names version {version} and batch {contained}")

    def _same_as_snapshot(self, where: str, offset: int, playbook: Playbook) -> None:
        known = self._snapshots.get(playbook.name)
        if known is None or known.version != playbook.version:
            return
        if known.content != fingerprint(playbook):
            self.findings.add("snapshot", f"{known.where} is not what {where} says")
        if known.history_offset != offset:
            text = f"{known.where} places itself at offset {known.history_offset} of history, not at {where}"
            self.findings.add("snapshot", text)

    def close(self) -> None:
        """Judge after the last record: snapshots that lag behind history or are ahead of it."""
        for name, known in self._snapshots.items():
            last, _ = self._last.get(name, (0, 0))
            judged = name in self._last or known.partition not in self.cut
            ahead, behind = known.version > last, known.version < self._settled.get(name, 0)
            if judged and (ahead or behind):
                text = f"{known.where} has version {known.version} of {name}, history ends at version {last}"
                self.findings.add("snapshot", text)
