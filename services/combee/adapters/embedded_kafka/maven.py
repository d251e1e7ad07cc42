"""One jar by its exact coordinate from the public Maven repository (jgo)."""

from pathlib import Path

TIMEOUT_S = 30


def fetch(coordinate: str, scratch: Path) -> Path:
    """Download ``group:artifact:version`` below ``scratch``; return the file.

    Never transitively: jgo's own resolver picks other versions than Maven does.
    """
    from jgo.maven import MavenContext  # noqa: PLC0415 - costs 0.4 s, only needed when a jar is missing

    group, artifact, version = coordinate.split(":")
    context = MavenContext(repo_cache=scratch, timeout=TIMEOUT_S)
    return Path(context.project(group, artifact).at_version(version).artifact().resolve())
