"""``combee forget`` with a failpoint: ``python -m support.failpoints.forget POINT MARKER forget …``.

POINT is one of ``FILES`` or around a change of a topic, such as ``after creating combee.reflections``.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from combee.adapters.kafka import KafkaAdmin, KafkaLog
from combee.adapters.ports import Outgoing
from combee.cli import forget
from combee.cli.__main__ import main
from combee.log.archive import erasing, forgetting, restoring, writing
from combee.log.archive.file import ArchiveWriter
from combee.log.archive.writing import Archived, write_archive
from combee_schemas.erasure import Erasure
from combee_schemas.records import Record

FILES = ("copying", "copied", "rewriting", "rewritten", "committed")
"""Within the copy of all that there is and behind it, the same of what is left; behind the groups' offsets."""


class Killed:
    """Kills this process when it passes a point, unless that has happened before."""

    def __init__(self, point: str, marker: Path) -> None:
        self._point, self._marker = point, marker

    def reach(self, point: str) -> None:
        if point == self._point and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def wrap_topics(killed: Killed) -> None:
    """Pass points around what the verb does with topics from now on."""

    class Admin(KafkaAdmin):
        async def create(
            self, topic: str, partitions: int, replication: int, config: Mapping[str, str]
        ) -> bool:
            killed.reach(f"before creating {self._connection.full(topic)}")
            made = await super().create(topic, partitions, replication, config)
            killed.reach(f"after creating {self._connection.full(topic)}")
            return made

        async def delete(self, topic: str, timeout_s: float = 30.0) -> None:
            killed.reach(f"before deleting {self._connection.full(topic)}")
            await super().delete(topic, timeout_s)
            killed.reach(f"after deleting {self._connection.full(topic)}")

    class Log(KafkaLog):
        async def produce(self, *outgoing: Outgoing) -> Sequence[int]:
            offsets = await super().produce(*outgoing)
            for topic in {each.topic for each in outgoing}:
                killed.reach(f"after producing {self._connection.full(topic)}")
            return offsets

    replace(forget, KafkaAdmin=Admin, KafkaLog=Log)


def wrap_files(killed: Killed) -> None:
    """Pass points around what the verb does with files, and behind the groups' offsets."""

    def writer(moment: str) -> type[ArchiveWriter]:
        class Writer(ArchiveWriter):
            def add(self, record: Record) -> None:
                if sum(self.records):
                    killed.reach(moment)
                super().add(record)

        return Writer

    replace(writing, ArchiveWriter=writer("copying"))
    replace(erasing, ArchiveWriter=writer("rewriting"))
    copy, rewrite, commit = write_archive, forgetting._rewritten, restoring._commit

    async def copied(*given: Any, **named: Any) -> Archived:
        archived = await copy(*given, **named)
        killed.reach("copied")
        return archived

    def rewritten(*given: Any, **named: Any) -> Sequence[Erasure]:
        erasures = rewrite(*given, **named)
        killed.reach("rewritten")
        return erasures

    async def committed(*given: Any, **named: Any) -> None:
        await commit(*given, **named)
        killed.reach("committed")

    replace(forgetting, write_archive=copied, _rewritten=rewritten)
    replace(restoring, _commit=committed)


def replace(module: ModuleType, **parts: object) -> None:
    for name, part in parts.items():
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, part)


if __name__ == "__main__":
    point, marker, *arguments = sys.argv[1:]
    restoring.WRITTEN_AT_ONCE = 20
    for wrap in (wrap_topics, wrap_files):
        wrap(Killed(point, Path(marker)))
    sys.argv = ["combee", *arguments]
    main()
