"""``combee learn --method gepa`` on a broker of its own: one text, a clean ledger, and no way to destroy it."""

from pathlib import Path

import pytest

from support import shown
from support.cli import combee

RUNS = str(shown.ROOT / "examples" / "runs.jsonl")
PLAYBOOK = ("--playbook", "support/instruction")


@pytest.mark.timeout(180)
async def test_a_text_is_learned_shown_exported_and_safe_from_another_method(tmp_path: Path) -> None:
    learned = await combee(
        "learn", RUNS, *PLAYBOOK, "--method", "gepa", "--simulated", "--json", data_dir=tmp_path
    )
    assert learned.code == 0, learned.err
    counts = learned.json()["reflections"]
    assert counts["applied"] == counts["published"] > 0

    ledger = await combee("ledger", "--json", data_dir=tmp_path)
    assert (ledger.code, ledger.json()["violations"]) == (0, [])

    candidate = await combee("playbook", "export", PLAYBOOK[1], "--format", "gepa", data_dir=tmp_path)
    (text,) = candidate.json().values()
    assert text.startswith("In a task about ") or len(text.splitlines()) > 1

    more = tmp_path / "more.jsonl"
    more.write_text('{"task": "another", "answer": "1", "feedback": "It is 2."}\n')
    refused = await combee("learn", str(more), *PLAYBOOK, "--simulated", data_dir=tmp_path)
    assert refused.code == 1
    assert "COMBEE_METHOD=gepa" in refused.err
