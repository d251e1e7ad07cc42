from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

from combee.adapters.embedded_kafka.data_dir import (
    CLUSTER_FILE,
    RUN_FILE,
    ClusterState,
    RunState,
    new_cluster_id,
)

RUN = RunState(address="127.0.0.1:1", pids={1: 4711, 2: 4712})


def test_a_run_is_remembered_until_it_is_removed(tmp_path: Path) -> None:
    RUN.save(tmp_path)
    assert RunState.load(tmp_path) == RUN

    RunState.remove(tmp_path)
    RunState.remove(tmp_path)

    assert RunState.load(tmp_path) is None


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "{}", "null", '{"pids": 3, "address": 4}', '{"ports": [1]}']
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: str) -> None:
    (tmp_path / RUN_FILE).write_text(damage)
    (tmp_path / CLUSTER_FILE).write_text(damage)

    assert RunState.load(tmp_path) is None
    assert ClusterState.load(tmp_path) is None


def test_cluster_ids_are_16_bytes_that_never_look_like_an_option() -> None:
    ids = {new_cluster_id() for _ in range(500)}

    assert len(ids) == 500
    assert all(len(urlsafe_b64decode(one + "==")) == 16 and one[0] != "-" for one in ids)
