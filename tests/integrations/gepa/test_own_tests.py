"""GEPA's own tests of its ``ComBEEReflectionLM`` pass with our class; they are read from a checkout that you name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = "COMBEE_TEST_GEPA"
TESTS = Path("tests", "test_combee_reflection_lm.py")
WITHIN_S = 150.0


def test_gepa_s_own_tests_pass_with_our_class(tmp_path: Path) -> None:
    inherited = os.environ  # noqa: TID251 - a child needs a PATH
    named = inherited.get(CHECKOUT, "")
    if not named:
        pytest.skip(
            f"set {CHECKOUT} to a checkout of github.com/gepa-ai/gepa; its own tests are run on its code"
        )
    checkout = Path(named).resolve()
    tests = checkout / TESTS
    assert tests.is_file(), f"{CHECKOUT}={named} has no {TESTS}: name a checkout of GEPA's main branch"
    wanted = len(re.findall(r"^def test_", tests.read_text("utf-8"), re.MULTILINE))
    # Nothing of GEPA's configuration is read: it may ask for plug-ins that are not installed here.
    bare = (
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
        "--noconftest",
        "-p",
        "no:cacheprovider",
        "-p",
        "swapped",
    )
    ended = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", *bare, str(tests)),
        cwd=tmp_path,
        env={**inherited, "PYTHONPATH": os.pathsep.join((str(checkout / "src"), str(Path(__file__).parent)))},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = re.search(r"^(\d+) passed(?:, \d+ warnings?)? in", ended.stdout, re.MULTILINE)
    assert passed, ended.stdout
    assert int(passed[1]) == wanted > 0
