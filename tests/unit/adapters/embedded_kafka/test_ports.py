import socket

from combee.adapters.embedded_kafka.ports import HIGHEST, LOOPBACK, LOWEST, NodePorts, all_free, free_ports


def test_three_nodes_get_six_ports_that_differ_and_are_free() -> None:
    ports = free_ports(3)

    assert len({number for pair in ports for number in (pair.broker, pair.controller)}) == 6
    assert all_free(ports)


def test_ports_are_none_that_the_system_gives_to_outgoing_connections() -> None:
    for pair in free_ports(3):
        assert LOWEST <= pair.broker <= HIGHEST < 32_768


def test_a_port_with_a_listener_is_taken() -> None:
    pair = free_ports(1)[0]
    with socket.socket() as listener:
        listener.bind((LOOPBACK, pair.controller))
        listener.listen()

        assert not all_free([pair])

    assert all_free([NodePorts(broker=pair.broker, controller=pair.controller)])
