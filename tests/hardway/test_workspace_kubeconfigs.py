"""The API by address."""

import ipaddress
from functools import cache
from pathlib import Path

import yaml
from tests.support import hardway

from umbilical.assets.hardway.certificates import names
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.inputs import Inputs
from umbilical.hardway.workspace_kubeconfigs import ADMIN, address_kubeconfig, kubeconfigs
from umbilical.pki.hardway_renewal import renew


def new_inputs() -> Inputs:
    cluster = hardway.cluster(Profile.KUBERNETES, 1, 0)
    made = renew(names(cluster), {}, cluster.terms, hardway.NOW)
    return Inputs(cluster, made.set, hardway.payload(Profile.KUBERNETES), hardway.identity())


@cache
def inputs() -> Inputs:
    return new_inputs()


def test_a_file_is_written_for_its_owner_once(tmp_path: Path) -> None:
    given = inputs()
    write = kubeconfigs(tmp_path, given)
    path = write(given.cluster.masters[0].address)
    assert path == tmp_path / ".umbilical" / "192.168.126.101.kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.stat().st_mtime_ns
    assert write(given.cluster.masters[0].address).stat().st_mtime_ns == before


def test_without_an_address_it_is_the_load_balancers(tmp_path: Path) -> None:
    value = yaml.safe_load(kubeconfigs(tmp_path, inputs())(None).read_bytes())
    assert value["clusters"][0]["cluster"]["server"] == "https://192.168.126.10:6443"


def test_it_holds_the_administrators_pair_and_no_names() -> None:
    given = inputs()
    text = address_kubeconfig(given, ipaddress.ip_address("fd00::1"))
    value = yaml.safe_load(text)
    assert value["clusters"][0]["cluster"]["server"] == "https://[fd00::1]:6443"
    assert value["users"][0]["name"] == "admin"
    assert given.certificates[ADMIN].key not in text


def test_one_of_other_keys_is_replaced(tmp_path: Path) -> None:
    first, second = (kubeconfigs(tmp_path, one)(None).read_bytes() for one in (inputs(), new_inputs()))
    assert first != second
