import subprocess
import sys
from pathlib import Path

import pytest

from combee.adapters.failpoints import POINTS, ExitFuse
from combee.ports import FatalError

DIES = """
import sys
from pathlib import Path
from combee.adapters.failpoints import ExitFuse
fuse = ExitFuse("after ask@2", Path(sys.argv[1]))
for point in ("after ask", "before produce", "after ask"):
    fuse.burn(point)
print("alive")
"""


def test_the_process_ends_at_the_named_pass_and_its_successor_lives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path / "hit")]
    first, second = (subprocess.run(command, capture_output=True, timeout=20, check=False) for _ in range(2))

    assert (first.returncode, first.stdout) == (137, b"")
    assert (second.returncode, second.stdout) == (0, b"alive\n")


def test_a_point_nobody_passes_is_refused_with_those_there_are() -> None:
    with pytest.raises(FatalError, match=POINTS[0]):
        ExitFuse("after lunch")
