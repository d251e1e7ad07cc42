"""A deployment as the command line sees it: its broker, whose files are at hand, and what this machine keeps."""

import gzip
from pathlib import Path
from typing import Any

from support.broker import Broker, segments
from support.cli import Ended, combee, once_services_are_gone
from support.segments import named


class Site:
    """A deployment, its broker's files, and what this machine keeps besides."""

    def __init__(self, kafka: Broker, prefix: str, folder: Path) -> None:
        kept_in = segments(kafka)
        assert kept_in, "the files of this broker are elsewhere"
        self.servers, self.prefix, self.folder = kafka.bootstrap_servers, prefix, folder
        self.segments = kept_in
        self.subject = f"jane.roe+{prefix}@example.com"
        self.env = {"COMBEE_BOOTSTRAP_SERVERS": self.servers}

    async def run(self, *arguments: str, prefix: str = "", stdin: str = "") -> Ended:
        env = {**self.env, "COMBEE_TOPIC_PREFIX": prefix or self.prefix}
        return await combee(*arguments, data_dir=self.folder / "data", stdin=stdin, **env)

    async def json(self, *arguments: str, prefix: str = "", stdin: str = "") -> Any:
        ended = await once_services_are_gone(
            lambda: self.run(*arguments, "--json", prefix=prefix, stdin=stdin)
        )
        assert ended.code == 0, ended.err
        assert self.subject not in (ended.out + ended.err).lower()
        return ended.json()

    def found(self) -> set[tuple[str, str]]:
        """Return the partitions, by any prefix, and files of our own that name the subject."""
        needle = self.subject.encode()
        ours = {
            (path.name, "ours") for path in self.folder.rglob("*") if path.is_file() and _has(path, needle)
        }
        return named(self.segments, needle, self.prefix) | ours


def _has(path: Path, needle: bytes) -> bool:
    raw = path.read_bytes()
    unpacked = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    return needle in unpacked.lower()
