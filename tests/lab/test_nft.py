"""The rules' texts as nft itself reads them, and what is said when it cannot."""

import ipaddress
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.worlds import World, run_in

from umbilical.lab import nft
from umbilical.lab.errors import LabError
from umbilical.lab.topology import Family, plan_topology

MASTER = plan_topology(family=Family.DUAL).node("master-1")
PODS = plan_topology(family=Family.DUAL).pod_networks
NODES = plan_topology(family=Family.DUAL).machine_networks
OPENINGS = [(ipaddress.ip_address("192.168.91.10"), 6443), (ipaddress.ip_address("fd94::11"), 8091)]
TEXTS = {
    "masquerade": nft.masquerade(MASTER.pod_networks, PODS, "machine0"),
    "refuse_transit": nft.refuse_transit("02:00:00:00:00:01"),
    "edge": nft.edge("02:00:00:00:00:01", "02:00:00:00:00:02", NODES, OPENINGS),
    "block_tcp_port": nft.block_tcp_port(8091),
    "lose_at_random": nft.lose_at_random(30, "machine0"),
    "drop_ipv4": nft.drop_address(ipaddress.ip_address("10.91.0.10")),
    "drop_ipv6": nft.drop_address(ipaddress.ip_address("fd91::10")),
}


FRONTS = {4: ipaddress.ip_address("10.91.0.200"), 6: ipaddress.ip_address("fd91::200")}


def _listed(name: str) -> str:
    return subprocess.check_output(["nft", "list", "table", "inet", f"umbilical_{name}"], timeout=30, text=True)


def test_pods_are_masqueraded_per_family_and_not_among_themselves() -> None:
    rules = [line.strip() for line in TEXTS["masquerade"].splitlines() if line.endswith("masquerade")]
    assert rules == [
        'oifname "machine0" ip saddr 10.92.1.0/24 ip daddr != 10.92.0.0/16 masquerade',
        'oifname "machine0" ip6 saddr fd92:0:0:1::/64 ip6 daddr != fd92::/48 masquerade',
    ]


def test_the_edge_lets_nodes_out_to_what_is_opened_and_hides_them_there() -> None:
    lines = [line.strip().removeprefix("ether daddr 02:00:00:00:00:01 ") for line in TEXTS["edge"].splitlines()]
    assert [line for line in lines if line.endswith("accept")] == [
        "ct direction reply accept",
        "ip daddr 192.168.91.10 tcp dport 6443 accept",
        "ip6 daddr fd94::11 tcp dport 8091 accept",
    ]
    assert [line for line in lines if line.endswith("masquerade")] == [
        "ip saddr 10.91.0.0/24 ip daddr 192.168.91.10 tcp dport 6443 masquerade",
        "ip6 saddr fd91::/64 ip6 daddr fd94::11 tcp dport 8091 masquerade",
    ]


@pytest.mark.root
@pytest.mark.real("nft")
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_address_is_spread_over_any_number_of_others(version: int, count: int) -> None:
    front = FRONTS[version]
    targets = [front + number for number in range(1, count + 1)]

    def body() -> str:
        nft.load("front", nft.spread(front, 8090, targets))
        return _listed("front")

    rules = run_in(World.ROOT, body)
    assert f"daddr {front} tcp dport 8090" in rules
    assert ("dnat" in rules) is bool(count)
    assert ("reject with tcp reset" in rules) is not bool(count)
    assert all(str(target) in rules for target in targets)


@pytest.mark.root
@pytest.mark.real("nft")
@pytest.mark.parametrize("world", list(World), ids=lambda world: world.value)
def test_every_text_is_loaded_with_all_its_rules(world: World) -> None:
    def body() -> None:
        for name, text in TEXTS.items():
            nft.load(name, text)
            rules = [
                line for line in text.splitlines() if line.endswith(("drop", "masquerade", "unreachable", "no-route"))
            ]
            verdicts = ("drop", "masquerade", "net-unreachable", "no-route")
            kept = [line for line in _listed(name).splitlines() if line.endswith(verdicts)]
            assert rules
            assert len(kept) == len(rules)
        assert nft.loaded() == sorted(TEXTS)
        for name in TEXTS:
            nft.unload(name)
        assert nft.loaded() == []

    run_in(world, body)


@pytest.mark.root
@pytest.mark.real("nft")
def test_tables_of_others_are_neither_listed_nor_touched() -> None:
    def body() -> None:
        subprocess.run(["nft", "add", "table", "inet", "kube-proxy"], check=True, timeout=30)
        nft.load("mine", "")
        nft.unload("mine")
        assert nft.loaded() == []
        tables = subprocess.check_output(["nft", "list", "tables"], timeout=30, text=True)
        assert tables == "table inet kube-proxy\n"

    run_in(World.ROOT, body)


@pytest.mark.root
@pytest.mark.real("nft")
def test_without_permission_the_kernel_is_quoted() -> None:
    def body() -> str:
        os.setresuid(65534, 65534, 65534)
        with pytest.raises(LabError) as caught:
            nft.load("mine", "")
        return caught.value.brief

    said = run_in(World.ROOT, body)
    assert said.startswith("UMB818 cannot load the rules mine: ")
    assert "Operation not permitted" in said


@given(
    st.text().filter(lambda name: not name.isascii() or not name.replace("_", "x").isalnum() or name.lower() != name)
)
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(LabError) as caught:
        nft.load(name, "")
    assert caught.value.code == "UMB818"


def test_nft_is_found_where_an_ordinary_users_path_does_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nft"
    program.touch()
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nft, "SYSTEM_FOLDERS", (str(tmp_path),))
    assert nft.program() == program


def test_the_package_of_a_missing_nft_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nft, "SYSTEM_FOLDERS", ())
    with pytest.raises(LabError) as caught:
        nft.program()
    assert caught.value.code == "UMB822"
    assert caught.value.remedy == "install the package nftables"
