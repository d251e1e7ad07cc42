"""``combee experiment`` as people run it: again, interrupted, with a real server, with mistakes."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from combee_schemas.model import Prompt
from combee_sim.inprocess import SimulatedModel
from support.cli import combee, start_anew
from support.fake_openai import Exchange, completion, fake_openai

QUICK = ("--samples", "40", "--seeds", "1", "--no-plot", "--simulated")
DEADLINE_S = 60.0


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.mark.timeout(150)
async def test_a_second_run_skips_what_is_there_and_prints_the_same(tmp_path: Path) -> None:
    arguments = ("experiment", "speed", *QUICK, "--out", str(tmp_path))
    first = await combee(*arguments, data_dir=tmp_path)
    assert first.code == 0, first.err
    assert first.out.startswith("## speed\n\n**Simulated**")
    cells = lines(tmp_path / "speed" / "cells.jsonl")
    written = (tmp_path / "speed" / "result.json").read_bytes()

    second = await combee(*arguments, data_dir=tmp_path)
    assert second.out == first.out
    assert lines(tmp_path / "speed" / "cells.jsonl") == cells
    assert (tmp_path / "speed" / "result.json").read_bytes() == written


@pytest.mark.timeout(150)
async def test_experiments_that_run_the_services_print_json_and_no_log_lines(tmp_path: Path) -> None:
    first = await combee("experiment", "async", *QUICK, "--json", "--out", str(tmp_path), data_dir=tmp_path)
    assert first.code == 0, first.err
    assert first.json()["simulated"] is True
    assert "batch" not in first.err
    again = await combee("experiment", "async", *QUICK, "--json", "--out", str(tmp_path), data_dir=tmp_path)
    assert again.out == first.out
    assert len(lines(tmp_path / "async" / "cells.jsonl")) == len(first.json()["cells"])


@pytest.mark.timeout(150)
async def test_ctrl_c_keeps_the_finished_cells_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "shuffle" / "cells.jsonl"
    arguments = ("experiment", "shuffle", "--samples", "200", "--seeds", "1", "--no-plot", "--simulated")
    process = await start_anew(*arguments, "--out", str(tmp_path), data_dir=tmp_path)
    async with asyncio.timeout(DEADLINE_S):
        while len(lines(path)) < 2:  # noqa: ASYNC110 - another process writes them
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate()
    assert process.returncode == 130, err.decode()
    assert b"the same command resumes from there" in err
    kept = lines(path)
    assert all(json.loads(line)["numbers"] for line in kept)

    ended = await combee(*arguments, "--out", str(tmp_path), "--json", data_dir=tmp_path)
    assert ended.code == 0, ended.err
    assert lines(path)[: len(kept)] == kept
    assert len(lines(path)) == len(ended.json()["cells"]) > len(kept)


async def test_a_real_model_is_asked_over_http_and_named(tmp_path: Path) -> None:
    standin = SimulatedModel()

    async def answer(exchange: Exchange) -> None:
        said = {message["role"]: message["content"] for message in exchange.body["messages"]}
        schema = exchange.body["response_format"]["json_schema"]
        prompt = Prompt(
            system=said["system"], user=said["user"], reply_name=schema["name"], reply_schema=schema["schema"]
        )
        reply = await standin.ask(prompt)
        await exchange.send(completion(json.dumps(reply.body)), {})

    async with fake_openai() as server:
        server.always = answer
        arguments = ("overload", "--samples", "6", "--questions", "2", "--seeds", "2", "--no-plot", "--json")
        place = ("--model", "some-model", "--base-url", server.url, "--out", str(tmp_path))
        ended = await combee("experiment", *arguments, *place, data_dir=tmp_path, OPENAI_API_KEY="none")

    assert ended.code == 0, ended.err
    document = ended.json()
    assert (document["model"], document["simulated"]) == ("some-model", False)
    assert "Simulated" not in (tmp_path / "overload" / "table.md").read_text(encoding="utf-8")
    reflected = list((tmp_path / "reflections").iterdir())
    assert [len(lines(file)) for file in reflected] == [6], "made once, for all arms and seeds"


async def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    absent = await combee("experiment", "speed", "--data", "absent.jsonl", data_dir=tmp_path)
    assert (absent.code, absent.err.count("\n")) == (1, 1)
    assert "absent.jsonl" in absent.err
    unknown = await combee("experiment", "speeed", data_dir=tmp_path)
    assert unknown.code == 2
    seeds = await combee("experiment", "speed", "--seeds", "4-2", data_dir=tmp_path)
    assert seeds.code == 2
    few = await combee("experiment", "controller", *QUICK, "--out", str(tmp_path), data_dir=tmp_path)
    assert (few.code, few.err.count("\n")) == (1, 1)
    assert "40 samples; the controller may choose 200" in few.err
