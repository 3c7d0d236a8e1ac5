"""What the bench's tunnels stand on."""

from bench_tunnel import free_port


def test_no_port_is_given_twice_though_nobody_listens_on_it_yet() -> None:
    ports = [free_port() for _ in range(300)]
    assert len(set(ports)) == len(ports)
