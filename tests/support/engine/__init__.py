"""A container engine for tests: the one that answers, or one of their own."""

import shutil
import subprocess
from collections.abc import Mapping


def answers(env: Mapping[str, str]) -> bool:
    """Whether a container engine answers, with Compose."""
    if shutil.which("docker", path=env.get("PATH")) is None:
        return False
    asked = (["docker", "version"], ["docker", "compose", "version"])
    return all(subprocess.run(one, env=env, capture_output=True, check=False).returncode == 0 for one in asked)
