"""A broker that is gone for good keeps no worker from ending when it is told to."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from combee.assembly.compose import FRONTS, ROLES, STOP_WITHIN_S
from support.faults.brokers import own_broker
from support.running import running_stack
from support.waiting import until

MODEL_TIMEOUT_S = 1.0
SLACK_S = 10.0


@pytest.mark.timeout(240)
async def test_every_worker_ends_on_sigterm_though_its_broker_is_gone(
    tmp_path: Path, topic_prefix: str, machine_env: dict[str, str]
) -> None:
    roles = (*ROLES, *FRONTS)
    async with (
        own_broker(tmp_path, machine_env) as kafka,
        running_stack(
            kafka.bootstrap_servers,
            topic_prefix,
            tmp_path,
            roles=roles,
            model_timeout_s=MODEL_TIMEOUT_S,
            gateway_port=0,
        ) as running,
    ):
        kafka.kill()
        first = {role: running.supervisor.pid(role) for role in roles}
        for role in roles:
            running.supervisor.send(role, signal.SIGTERM)
        late = MODEL_TIMEOUT_S + STOP_WITHIN_S + SLACK_S
        for role, pid in first.items():
            # By pid: those started in their place cannot reach the broker and end by themselves.
            await until(partial(_gone, pid), late, f"the end of {role}")


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
