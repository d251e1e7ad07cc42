"""``combee sync`` on real Kafka: each version that is published is in the file, and the rest of it stays."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from combee.adapters.kafka import KafkaLog
from combee.adapters.kafka.connection import Connection
from support.broker import Broker
from support.cli import combee, environment, start
from support.gateway import published, version
from support.waiting import until

NAME = "support/refunds"
DEADLINE_S = 60.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "sync.sh"


async def until_it_says(file: Path, words: str) -> None:
    await until(lambda: file.exists() and words in file.read_text(), DEADLINE_S, words)


async def test_a_watching_sync_writes_each_version_and_once_as_the_example_does(
    kafka: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    env = {"COMBEE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COMBEE_TOPIC_PREFIX": topic_prefix}
    file = tmp_path / "AGENTS.md"
    file.write_bytes(b"# Rules\r\nBe kind.\r\n")
    assert (await combee("topics", "create", data_dir=tmp_path, **env)).code == 0
    log = KafkaLog(Connection(bootstrap_servers=kafka.bootstrap_servers, prefix=topic_prefix))
    try:
        watching = await start("sync", NAME, "--to", str(file), data_dir=tmp_path, **env)
        await published(log, version(NAME, 1, "Ask a manager above 100."))
        await until_it_says(file, "Ask a manager above 100.")
        await published(log, version(NAME, 2, "Check the date of purchase."))
        await until_it_says(file, "Check the date of purchase.")
        watching.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(watching.communicate(b""), DEADLINE_S)
        assert watching.returncode == 0, err.decode()
        assert f"{file} now has {NAME} version 2" in out.decode()

        assert file.read_bytes().startswith(b"# Rules\r\nBe kind.\r\n\r\n<!-- combee:begin support/refunds")
        exported = await combee("playbook", "export", NAME, "--format", "md", data_dir=tmp_path, **env)
        assert exported.out in file.read_bytes().decode().replace("\r\n", "\n")

        variables = environment(tmp_path, env)
        ended = await asyncio.to_thread(
            subprocess.run,
            ("sh", str(EXAMPLE), "--once"),
            cwd=tmp_path,
            env=variables | {"PATH": f"{Path(sys.executable).parent}:{variables['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout.count(f" has {NAME} version 2")) == (0, 3), ended.stderr
        assert "name: refunds" in (tmp_path / ".claude" / "skills" / "refunds" / "SKILL.md").read_text()
        assert "alwaysApply" in (tmp_path / ".cursor" / "rules" / "refunds.mdc").read_text()
    finally:
        await log.close()
