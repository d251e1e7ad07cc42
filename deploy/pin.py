"""Pin the base images: ``python3 deploy/pin.py`` looks up their digests and writes them into ``.env``.

``docker pull`` asks the registry, and the digest that it says is written: NAME=IMAGE@sha256:…. Where one image
has none, nothing is written, and the exit code is 1. ``python3 deploy/pin.py NAME=IMAGE`` pins other images, of a
mirror for example; those that ``.env`` names are pinned as named there.
"""

import re
import subprocess
import sys
from pathlib import Path

ENV = Path(".env")
COMPOSE = Path(__file__).parents[1] / "docker-compose.yml"
IMAGE = re.compile(r"\$\{((?:PYTHON|KAFKA)_IMAGE):-([^}]+)\}")
DIGEST = re.compile(r"^Digest: (sha256:[0-9a-f]{64})$", re.MULTILINE)
PULL_S = 900


class NotPinnedError(Exception):
    """A digest could not be looked up."""


def main(given: list[str]) -> int:
    """Pin all images; return the exit code."""
    lines = ENV.read_text("utf-8").splitlines() if ENV.exists() else []
    named = dict(line.partition("=")[::2] for line in (*lines, *given) if "=" in line)
    images = {
        name: (named.get(name) or default).partition("@")[0]
        for name, default in dict(IMAGE.findall(COMPOSE.read_text("utf-8"))).items()
    }
    try:
        pinned = {name: f"{image}@{digest(image)}" for name, image in images.items()}
    except NotPinnedError as error:
        sys.stderr.write(f"pin: {error}; nothing was written\n")
        return 1
    kept = [line for line in lines if line.partition("=")[0] not in pinned]
    new = [f"{name}={image}" for name, image in pinned.items()]
    ENV.write_text("".join(f"{line}\n" for line in (*kept, *new)), "utf-8")
    sys.stdout.write("".join(f"{line}\n" for line in new))
    return 0


def digest(image: str) -> str:
    """Return the digest under which a registry serves an image, for all its platforms.

    Raises
    ------
    NotPinnedError
        If there is none.
    """
    command = ["docker", "pull", image]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PULL_S, check=False)
    found = DIGEST.search(done.stdout)
    if done.returncode or not found:
        raise NotPinnedError(f"{image}: {done.stderr.strip() or 'the registry says no digest'}")
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
