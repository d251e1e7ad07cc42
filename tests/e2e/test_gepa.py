"""``combee learn --method gepa``: one text, a clean ledger, and no way to destroy it."""

from pathlib import Path

import pytest

from support import shown
from support.broker import Broker
from support.cli import combee

RUNS = str(shown.ROOT / "examples" / "runs.jsonl")
PLAYBOOK = ("--playbook", "support/instruction")


@pytest.mark.timeout(180)
async def test_a_text_is_learned_shown_exported_and_safe_from_another_method(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    cluster = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": topic_prefix}
    learned = await combee(
        "learn",
        RUNS,
        *PLAYBOOK,
        "--method",
        "gepa",
        "--simulated",
        "--start-workers",
        "--json",
        data_dir=tmp_path,
        **cluster,
    )
    assert learned.code == 0, learned.err
    counts = learned.json()["reflections"]
    assert counts["applied"] == counts["published"] > 0

    ledger = await combee("ledger", "--json", data_dir=tmp_path, **cluster)
    assert (ledger.code, ledger.json()["violations"]) == (0, [])

    candidate = await combee(
        "playbook", "export", PLAYBOOK[1], "--format", "gepa", data_dir=tmp_path, **cluster
    )
    (text,) = candidate.json().values()
    assert text.startswith("In a task about ") or len(text.splitlines()) > 1

    more = tmp_path / "more.jsonl"
    more.write_text('{"task": "another", "answer": "1", "feedback": "It is 2."}\n')
    refused = await combee(
        "learn", str(more), *PLAYBOOK, "--simulated", "--start-workers", data_dir=tmp_path, **cluster
    )
    assert refused.code == 1
    assert "COMBEE_METHOD=gepa" in refused.err
