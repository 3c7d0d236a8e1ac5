"""HAProxy's configuration, read: whatever it says, in whatever form people write it."""

import hypothesis
from hypothesis import strategies

from umbilical.assets.hardway.lint.balancer_text import read_balancer

TEXT = """\
# before everything
global
    maxconn 10
defaults
    default-server inter 2s check
listen api
    bind 10.0.0.1:6443   # the API
    bind [fd00::1]:6443
    server a 10.0.0.2:6443 check-ssl verify none
frontend web
    bind :80
    default_backend web
backend web
    default-server fall 2
    server b 10.0.0.3:80 port 1936
    server broken
listen stats
    bind :9000
    stats enable
"""


def test_servers_have_what_is_said_of_all() -> None:
    balancer = read_balancer(TEXT)
    (web,) = balancer.backend_at(80)
    (server,) = balancer.servers(web)
    assert server.words == ("inter", "2s", "check", "fall", "2", "port", "1936")
    assert (server.is_checked, server.check_port, server.port) == (True, 1936, 80)
    assert not server.is_asked_over_tls


def test_a_listen_section_is_front_and_back_in_one() -> None:
    balancer = read_balancer(TEXT)
    (api,) = balancer.backend_at(6443)
    assert [server.name for server in balancer.servers(api)] == ["a"]
    assert balancer.servers(api)[0].is_asked_over_tls


def test_every_socket_is_listed_but_those_of_the_statistics() -> None:
    found = [(address, port) for _, address, port in read_balancer(TEXT).binds()]
    assert found == [("10.0.0.1", 6443), ("fd00::1", 6443), ("", 80)]


@hypothesis.given(strategies.lists(strategies.sampled_from([*TEXT.split(), "\n", "#", ":", "\x00"]), max_size=60))
def test_any_text_is_read(words: list[str]) -> None:
    balancer = read_balancer(" ".join(words))
    for section in balancer.sections:
        for server in balancer.servers(section):
            assert server.check_port >= 0
    balancer.binds()
    balancer.backend_at(80)
