"""``combee learn`` on real inputs: on a broker of its own, which keeps its topics, and on one that is given."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.broker import Broker
from support.cli import Ended, combee, start

SIMULATED = ("--simulated", "--json")
OURS = (*SIMULATED, "--start-workers")
ACE = "## OTHERS\n[misc-00001] helpful=1 harmful=0 :: look twice\n"


@pytest.fixture
def cluster(kafka: Broker, topic_prefix: str) -> dict[str, str]:
    """Return the settings that name a Kafka which runs already: one less to start in each command."""
    return {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": topic_prefix}


def _counts(ended: Ended) -> dict[str, int]:
    counts: dict[str, int] = ended.json()["reflections"]
    return counts


@pytest.mark.shared
@pytest.mark.timeout(300)
async def test_equations_are_all_applied_once_and_the_ledger_agrees(
    shared: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    file = str(shared / "data" / "traces_equation_balancer.jsonl")
    verb = ("learn", file, "--playbook", "math/equations", *OURS)
    learned, again = [await combee(*verb, data_dir=tmp_path, **cluster) for _ in range(2)]
    ledger = await combee("ledger", "--json", data_dir=tmp_path, **cluster)

    assert learned.code == 0, learned.err
    assert _counts(learned) == {
        "published": 250,
        "applied": 250,
        "duplicates": 0,
        "dead_lettered": 0,
        "rejected": 0,
    }
    assert (again.code, _counts(again)["duplicates"], again.json()["version"]) == (
        0,
        250,
        learned.json()["version"],
    )
    assert ledger.code == 0
    assert {name: ledger.json()[name] for name in ("reflections", "applied", "lost", "double")} == {
        "reflections": 250,
        "applied": 250,
        "lost": 0,
        "double": 0,
    }


@pytest.mark.timeout(300)
async def test_without_a_cluster_what_was_imported_and_learned_is_found_again_tomorrow(
    tmp_path: Path,
) -> None:
    out, lesson = tmp_path / "playbook.txt", json.dumps({"key_insight": "When lost, look at the signs."})
    imported = await combee("playbook", "import", "mine", "-", "--json", data_dir=tmp_path, stdin=ACE)
    verb = ("learn", "-", "--playbook", "mine", "--out", str(out), *SIMULATED)
    learned = await combee(*verb, data_dir=tmp_path, stdin=lesson)
    ledger = await combee("ledger", "--json", data_dir=tmp_path)

    assert (imported.code, imported.json()["version"]) == (0, 1), imported.err
    assert (learned.code, learned.json()["version"]) == (0, 2), learned.err
    assert ACE in out.read_text("utf-8")
    assert (ledger.code, ledger.json()["applied"], ledger.json()["violations"]) == (0, 1, [])


@pytest.mark.shared
@pytest.mark.timeout(300)
async def test_formula_samples_are_answered_reflected_and_applied(
    shared: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    file = str(shared / "data" / "formula_train.jsonl")
    learned = await combee("learn", file, "--playbook", "fin/formula", *OURS, data_dir=tmp_path, **cluster)
    ledger = await combee("ledger", "--json", data_dir=tmp_path, **cluster)

    assert learned.code == 0, learned.err
    assert _counts(learned)["applied"] == 500
    assert (ledger.code, ledger.json()["applied"], ledger.json()["violations"]) == (0, 500, [])


@pytest.mark.shared
@pytest.mark.timeout(300)
async def test_a_stand_in_that_is_given_the_data_teaches_each_formula_s_convention(
    shared: Path, tmp_path: Path, cluster: dict[str, str]
) -> None:
    lines = (shared / "data" / "formula_train.jsonl").read_text("utf-8").splitlines()[:40]
    file, out = tmp_path / "some.jsonl", tmp_path / "playbook.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    told = ("--sim-option", f"knows={file}", "--out", str(out))
    learned = await combee("learn", str(file), *OURS, *told, data_dir=tmp_path / "home", **cluster)

    assert learned.code == 0, learned.err
    assert _counts(learned)["applied"] == 40
    entries = [line for line in out.read_text("utf-8").splitlines() if line.startswith("[")]
    assert entries
    assert all(": compute it with " in entry for entry in entries)


@pytest.mark.timeout(300)
async def test_beside_a_simulated_deployment_learn_uses_its_stand_in_with_the_flag_and_without(
    tmp_path: Path,
) -> None:
    runs = json.dumps({"context": "What is 2 + 2?", "target": "4"})  # answered by learn itself, too
    up = await start("up", "--simulated", data_dir=tmp_path, COMBEE_GATEWAY_PORT="0")
    try:
        async with asyncio.timeout(120):
            shown = [line.decode() async for line in up_to(up.stderr, b"health, metrics")]
        beside = [
            await combee("learn", "-", "--playbook", name, "--json", *flags, data_dir=tmp_path, stdin=runs)
            for name, flags in (("with/flag", ["--simulated"]), ("without/flag", []))
        ]
        other = await combee("learn", "-", "--model", "gpt-x", data_dir=tmp_path, stdin=runs)
    finally:
        up.send_signal(signal.SIGINT)
        await up.communicate()

    assert [one.err for one in beside if one.code] == []
    assert [_counts(one)["applied"] for one in beside] == [1, 1]
    assert (other.code, "simulated" in other.err, "gpt-x" in other.err) == (2, True, True)
    # It begins with a banner, not with what services and libraries say to themselves.
    assert shown[2].startswith("combee is up")
    assert all(line.startswith("  ") for line in shown[3:])


async def up_to(lines: asyncio.StreamReader, last: bytes) -> AsyncIterator[bytes]:
    async for line in lines:
        yield line
        if last in line:
            return


@pytest.mark.timeout(120)
async def test_bad_lines_are_named_and_the_rest_is_learned(tmp_path: Path, cluster: dict[str, str]) -> None:
    good = [json.dumps({"key_insight": f"When lost, look at sign {n}."}) for n in range(6)]
    lines = [*good[:3], "{not json", '{"nothing": "known"}', *good[3:], good[0]]
    out = tmp_path / "playbook.txt"
    ended = await combee(
        "learn",
        "-",
        "--out",
        str(out),
        *OURS,
        data_dir=tmp_path / "home",
        stdin="\n".join(lines),
        **cluster,
    )

    assert ended.code == 3
    assert "standard input:4:" in ended.err
    assert "standard input:5:" in ended.err
    assert _counts(ended) == {
        "published": 6,
        "applied": 6,
        "duplicates": 1,
        "dead_lettered": 0,
        "rejected": 2,
    }
    assert out.read_text().startswith("## ")


async def test_a_missing_file_is_one_line_of_error(tmp_path: Path) -> None:
    ended = await combee("learn", "nowhere.jsonl", "--simulated", data_dir=tmp_path)

    assert (ended.code, ended.err) == (1, "combee: cannot read nowhere.jsonl: No such file or directory\n")


@pytest.mark.timeout(300)
async def test_recorded_runs_of_another_program_are_learned_once(
    tmp_path: Path, cluster: dict[str, str]
) -> None:
    runs = Path(__file__).parents[1] / "golden" / "trajectories" / "terminal-bench"
    arguments = ("learn", str(runs), "--from", "terminal-bench", "--playbook", "terminal", *OURS)
    learned, again = [await combee(*arguments, data_dir=tmp_path, **cluster) for _ in range(2)]

    assert learned.code == 0, learned.err
    assert (_counts(learned)["applied"], _counts(learned)["duplicates"]) == (2, 0)
    assert (again.code, _counts(again)["duplicates"]) == (0, 2)
