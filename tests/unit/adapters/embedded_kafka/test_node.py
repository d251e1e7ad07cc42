from pathlib import Path

from combee.adapters.embedded_kafka.node import Node, controller_properties, render, server_properties
from combee.adapters.embedded_kafka.ports import NodePorts

PORTS = tuple(NodePorts(broker=n, controller=n + 1) for n in (20_000, 20_010, 20_020))


def test_every_listener_is_on_loopback_only() -> None:
    properties = server_properties(2, PORTS, Path("logs"), {})

    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20010,CONTROLLER://127.0.0.1:20011"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20010"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:20001,2@127.0.0.1:20011,3@127.0.0.1:20021"


def test_one_node_keeps_one_replica_and_three_keep_three() -> None:
    one, three = (server_properties(1, PORTS[:count], Path("logs"), {}) for count in (1, 3))

    assert (one["offsets.topic.replication.factor"], one["transaction.state.log.min.isr"]) == ("1", "1")
    assert (three["offsets.topic.replication.factor"], three["transaction.state.log.min.isr"]) == ("3", "2")


def test_own_properties_win() -> None:
    assert server_properties(1, PORTS, Path("logs"), {"node.id": "7"})["node.id"] == "7"


def test_a_backslash_survives_the_properties_format() -> None:
    assert render({"log.dirs": r"a\b"}) == "log.dirs=a\\\\b\n"


def test_a_name_with_a_plus_appends() -> None:
    properties = server_properties(1, PORTS[:1], Path("logs"), {"listeners+": "OTHER://127.0.0.1:1"})

    assert properties["listeners"].endswith(",OTHER://127.0.0.1:1")
    assert "listeners+" not in properties


def test_a_controller_alone_has_no_listener_of_brokers_and_gives_up_soon_who_is_silent() -> None:
    properties = server_properties(2, PORTS, Path("logs"), {"listeners+": "OTHER://127.0.0.1:1"})
    alone = controller_properties(properties)

    assert (alone["process.roles"], alone["listeners"]) == ("controller", "CONTROLLER://127.0.0.1:20011")
    assert not {"advertised.listeners", "inter.broker.listener.name"} & alone.keys()
    assert int(alone["broker.session.timeout.ms"]) < int(properties["broker.session.timeout.ms"])
    kept = ("node.id", "log.dirs", "controller.quorum.voters")
    assert [alone[name] for name in kept] == [properties[name] for name in kept]


def test_a_node_was_killed_if_it_ran_and_left_no_word_of_a_good_end(tmp_path: Path) -> None:
    node = Node(node_id=1, data_dir=tmp_path)
    logs = node.folder / "logs"
    assert not node.was_killed, "it never ran"
    (logs / "__cluster_metadata-0").mkdir(parents=True)
    assert node.was_killed
    (logs / ".kafka_cleanshutdown").touch()
    assert not node.was_killed
