"""HAProxy's words, read."""

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.host.errors import HostError
from umbilical.host.haproxy import faults, parse_stats
from umbilical.host.machine_records import BackendServer

HEAD = "# pxname,svname,status,check_status\n"


def test_servers_are_told_from_frontends_and_sums() -> None:
    rows = "api,FRONTEND,OPEN,\napi,bootstrap,UP,L7OK\napi,master-0,no check,\napi,BACKEND,UP,\n"
    assert parse_stats(HEAD + rows) == [
        BackendServer("api", "bootstrap", True, "L7OK"),
        BackendServer("api", "master-0", False, ""),
    ]


def test_a_server_that_was_never_checked_is_not_up() -> None:
    assert not parse_stats(HEAD + "api,a,UP,INI\n")[0].is_up


def test_a_check_on_its_way_has_its_last_outcome() -> None:
    assert parse_stats(HEAD + "api,a,UP,* L7OK\n")[0].check == "L7OK"


@given(st.text(max_size=200))
def test_whatever_it_says_is_servers_or_a_told_fault(text: str) -> None:
    with contextlib.suppress(HostError):
        assert all(isinstance(one, BackendServer) for one in parse_stats(text))


def test_silence_and_success_are_no_fault() -> None:
    assert faults(0, "Configuration file is valid\n") == ""
    assert faults(1, "") == "it exited with 1"


@pytest.mark.real("haproxy")
def test_a_real_haproxy_warns_and_refuses_in_these_words(tmp_path: Path) -> None:
    config = tmp_path / "haproxy.cfg"
    texts = {
        "defaults\n mode tcp\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n": False,
        "defaults\n mode tcp\nfrontend x\n bind 127.0.0.1:1\n": True,
        "defaults\n mode nonsense\n": True,
    }
    for text, is_wrong in texts.items():
        config.write_text(f"{text}frontend f\n bind 127.0.0.1:3\n")
        command = ["haproxy", "-c", "-f", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        found = faults(done.returncode, done.stdout + done.stderr)
        assert bool(found) == is_wrong, done.stderr
