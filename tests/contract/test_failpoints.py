"""The failpoints of the fault tests: a process ends at the named pass, its successor lives."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.failpoints.points import EXIT_CODE, POINTS, ExitFailpoint

TESTS = Path(__file__).parents[1]
DIES = """
import sys
from pathlib import Path
from support.failpoints.points import ExitFailpoint
failpoint = ExitFailpoint("after ask@2", Path(sys.argv[1]))
for point in ("after ask", "before produce", "after ask"):
    failpoint.reach(point)
print("alive")
"""


def test_a_point_nobody_passes_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=POINTS[0]):
        ExitFailpoint("after lunch", tmp_path / "marker")


def test_at_a_failpoint_the_process_ends_at_the_named_pass_and_its_successor_lives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path / "marker")]
    first, second = (
        subprocess.run(command, cwd=TESTS, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        for _ in range(2)
    )

    assert (first.returncode, first.stdout) == (EXIT_CODE, "")
    assert (second.returncode, second.stdout) == (0, "alive\n")
