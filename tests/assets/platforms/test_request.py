"""Nothing that a user types reaches a script before it was looked at."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbilical.assets.errors import AssetError
from umbilical.assets.platforms.request import INFRA_ID, Release, Request, parse_network, parse_release


@pytest.mark.parametrize("infra_id", ["x; rm -rf /", "A", "-x", "x-", "a b", "$(id)", "x" * 33, 'a"b', "ä", "x\n"])
def test_an_infra_id_that_no_installer_makes_is_refused(infra_id: str) -> None:
    with pytest.raises(AssetError, match="UMB160 infra id"):
        Request(infra_id)


def test_an_infra_id_of_an_installer_is_taken() -> None:
    assert Request("mycluster-with-a-long-na-x7k2p").cluster("-nsg") == "mycluster-with-a-long-na-x7k2p-nsg"


def test_a_name_of_the_cluster_needs_its_id() -> None:
    with pytest.raises(AssetError, match="the infra id is not known"):
        Request().cluster("-nsg")


@pytest.mark.parametrize("port", [0, 22, 6443, 22623, 49152, 65536, -1])
def test_a_port_that_the_server_cannot_have_is_refused(port: int) -> None:
    with pytest.raises(AssetError, match="UMB160 port"):
        Request("ci", port)


def test_sources_are_asked_for_where_nothing_narrower_is_known() -> None:
    with pytest.raises(AssetError, match="UMB162"):
        Request("ci").named_networks("baremetal")


@pytest.mark.parametrize(("text", "release"), [("4.18", (4, 18)), ("4.18.3", (4, 18)), ("5.0.0-ec.1", (5, 0))])
def test_a_release_is_read_from_a_whole_version(text: str, release: tuple[int, int]) -> None:
    assert parse_release(text) == Release(*release)


@pytest.mark.parametrize("text", ["", "4", "four", "4.11", "4.18; id", "v4.18", "4.1888", "3.11"])
def test_what_is_no_release_is_refused(text: str) -> None:
    with pytest.raises(AssetError, match="UMB160 release"):
        parse_release(text)


def test_releases_have_an_order_and_an_unknown_one_counts_as_new() -> None:
    assert Request("ci", release=Release(4, 9)).is_before(4, 16)
    assert not Request("ci", release=Release(5, 0)).is_before(4, 16)
    assert not Request("ci").is_before(4, 16)


@pytest.mark.parametrize("text", ["10.0.0.1/16", "10.0.0", "::/129", "", "10.0.0.0/16 any", "all"])
def test_a_network_that_can_be_misread_is_refused(text: str) -> None:
    with pytest.raises(AssetError, match="UMB160 source"):
        parse_network(text)


def test_a_single_address_is_a_network_of_one() -> None:
    assert str(parse_network("10.0.0.7")) == "10.0.0.7/32"
    assert str(parse_network("fd00::7")) == "fd00::7/128"


@given(st.text(max_size=40))
def test_any_text_is_an_infra_id_or_a_fault(text: str) -> None:
    if text == "" or INFRA_ID.fullmatch(text):
        assert Request(text).infra_id == text
    else:
        with pytest.raises(AssetError, match="UMB160"):
            Request(text)


@given(st.text(max_size=30))
def test_any_text_is_a_release_and_a_network_or_a_fault(text: str) -> None:
    for parse in (parse_release, parse_network):
        with contextlib.suppress(AssetError):
            assert str(parse(text))
