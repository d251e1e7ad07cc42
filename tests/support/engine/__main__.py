"""Run a command beside a container engine: ``python -m support.engine COMMAND…``.

The engine that answers is used. One of the tests' own is installed and started only where
``COMBEE_TEST_ENGINE=start`` asks for it (Debian, root). Without either, the command runs all the same, and its tests
are skipped.
"""

import os
import subprocess
import sys

from support.engine import answers, own, prepared


def main(command: list[str]) -> int:
    """Run it."""
    environ = os.environ  # noqa: TID251 - an opt-in of whoever starts the tests
    if answers(environ) or environ.get("COMBEE_TEST_ENGINE") != "start":
        return subprocess.run(command, check=False).returncode
    prepared.prepare(cluster=environ.get("COMBEE_TEST_CLUSTER") == "build")
    return own.run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
