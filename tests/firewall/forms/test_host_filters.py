"""nftables and firewalld on the host: rulesets that the kernel takes, and that let in whom they say."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.netns import Namespace, Network

from umbilical.firewall.forms.texts import TABLE, firewalld_script, rich_rule, ruleset, teardown
from umbilical.firewall.platforms.platform import BOOTSTRAP_HOST, FirewallRule, RuleSide, RuleSideKind
from umbilical.host.processes import Child, start

PORT: Final = 8091
SERVER: Final = f"""
import socket
with socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
    print("ready", flush=True)
    while True:
        listener.accept()[0].close()
"""
DIAL: Final = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()
except ConnectionRefusedError:
    print("refused")
except TimeoutError:
    print("timed out")
else:
    print("open")
"""


def _rules(*networks: str) -> tuple[FirewallRule, ...]:
    return (
        FirewallRule(
            "konnectivity", PORT, tuple(RuleSide(RuleSideKind.NETWORK, text) for text in networks), BOOTSTRAP_HOST
        ),
    )


def test_families_have_a_line_each_and_overlaps_are_merged() -> None:
    text = ruleset(_rules("10.0.0.0/16", "10.0.3.0/24", "fd00::/64"), ("two words",))
    assert f"        tcp dport {PORT} ip saddr {{ 10.0.0.0/16 }} accept\n" in text
    assert f"        tcp dport {PORT} ip6 saddr {{ fd00::/64 }} accept\n" in text
    assert "# two words\n" in text
    assert "ip6 saddr" not in ruleset(_rules("10.0.0.0/16"), ())


class Site:
    """A bootstrap machine with two neighbours, of which one is a node."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.folder = folder
        self.bootstrap = network.create("bootstrap")
        self.node = network.create("node")
        self.stranger = network.create("stranger")
        network.link(self.node, "10.1.0.2/24", self.bootstrap, "10.1.0.1/24")
        network.link(self.stranger, "10.2.0.2/24", self.bootstrap, "10.2.0.1/24")
        network.link(self.node, "fd01::2/64", self.bootstrap, "fd01::1/64")

    def load(self, text: str) -> None:
        path = self.folder / "rules.nft"
        path.write_text(text)
        subprocess.run(self.bootstrap.command("nft", "-f", path), check=True, timeout=30)

    def tables(self) -> str:
        command = self.bootstrap.command("nft", "list", "tables")
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def dial(self, origin: Namespace, address: str) -> str:
        command = origin.command(sys.executable, "-c", DIAL, address, str(PORT))
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Network("umbfw") as network:
        made = Site(network, tmp_path)
        with _serving(made) as server:
            server.wait_ready(lambda: "ready" in server.log_text(), 20)
            yield made


def _serving(site: Site) -> Child:
    command = site.bootstrap.command(sys.executable, "-c", SERVER)
    return start(command, site.folder / "server.log", name="listener")


@pytest.mark.root
@pytest.mark.real("nft", "ip", "nsenter")
def test_nodes_get_through_and_nobody_else(site: Site) -> None:
    assert site.dial(site.stranger, "10.2.0.1") == "open"
    site.load(ruleset(_rules("10.1.0.0/24", "fd01::/64"), ("test",)))
    assert site.dial(site.node, "10.1.0.1") == "open"
    assert site.dial(site.node, "fd01::1") == "open"
    assert site.dial(site.stranger, "10.2.0.1") == "refused"
    assert site.dial(site.bootstrap, "127.0.0.1") == "open"


@pytest.mark.root
@pytest.mark.real("nft", "ip", "nsenter")
def test_a_ruleset_replaces_the_one_before_and_teardown_leaves_nothing(site: Site) -> None:
    site.load(ruleset(_rules("10.1.0.0/24"), ()))
    site.load(ruleset(_rules("10.2.0.0/24", "10.2.0.2"), ()))
    assert site.dial(site.node, "10.1.0.1") == "refused"
    assert site.dial(site.stranger, "10.2.0.1") == "open"
    for _ in range(2):
        site.load(teardown(("gone",)))
    assert TABLE not in site.tables()
    assert site.dial(site.node, "10.1.0.1") == "open"


@pytest.mark.root
@pytest.mark.real("nft", "ip", "nsenter")
def test_the_line_for_other_tables_opens_one_that_drops(site: Site) -> None:
    """The comment promises it: an accept of ours does not undo another table's drop."""
    site.load("table inet filter { chain input { type filter hook input priority 0; policy drop; }; }\n")
    text = ruleset(_rules("10.1.0.0/24"), ())
    site.load(text)
    assert site.dial(site.node, "10.1.0.1") == "timed out"
    [line] = [line.removeprefix("# nft ") for line in text.splitlines() if line.startswith("# nft ")]
    site.load(line)
    assert site.dial(site.node, "10.1.0.1") == "open"


NETWORKS = ("10.0.0.0/16", "fd00::/64")
RULES = _rules(*NETWORKS)


def _commands(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("firewall-cmd")]
    return [shlex.split(line) for line in lines]


def test_rules_are_never_permanent_and_end_by_themselves() -> None:
    made = _commands(firewalld_script(RULES, ("why",)))
    assert [words[2] for words in made] == ["--timeout=24h", "--timeout=24h"]
    assert not any("--permanent" in words for words in made)


def test_closing_removes_exactly_what_opening_adds() -> None:
    rule = 'rule family="ipv6" source address="fd00::/64" port port="8091" protocol="tcp" accept'
    assert rich_rule("fd00::/64", 8091) == rule
    added = [words[1].removeprefix("--add-rich-rule=") for words in _commands(firewalld_script(RULES, ()))]
    removed = [
        words[1].removeprefix("--remove-rich-rule=") for words in _commands(firewalld_script(RULES, (), closing=True))
    ]
    assert added == removed == [rich_rule(network, 8091) for network in NETWORKS]
