"""``combee publish`` from a stream: each line for itself."""

import json
from pathlib import Path

import pytest

from combee.adapters.clock import SystemClock
from combee.adapters.memory import MemoryLog
from combee.cli.shared.console import REJECTED
from combee_schemas import topics
from combee_schemas.trace import Trace
from support.ledger import messages
from support.reading import run, use_log


def test_bytes_that_are_no_text_reject_their_line_and_the_stream_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = MemoryLog(SystemClock())
    use_log(monkeypatch, log)
    monkeypatch.setenv("COMBEE_DATA_DIR", str(tmp_path))
    first, last = (json.dumps({"task": task, "answer": "a"}).encode() for task in ("first", "last"))

    result = run("publish", "-", stdin=first + b'\n{"task": "\xff", "answer": "a"}\n' + last)

    assert (result.exit_code, result.stdout) == (
        REJECTED,
        "published 2 traces, 0 reflections, 0 outcomes; 1 lines rejected\n",
    )
    assert "standard input:2: not a text in UTF-8" in result.stderr
    assert [trace.task for trace in messages(log, topics.TRACES, Trace)] == ["first", "last"]
