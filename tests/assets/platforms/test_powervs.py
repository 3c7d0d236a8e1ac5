"""PowerVS: as narrow as each form allows."""

import pytest

from umbilical.assets.errors import AssetError
from umbilical.assets.platforms.powervs import blocks, commands, edit
from umbilical.assets.platforms.request import Request, parse_network


def _request(*networks: str) -> Request:
    return Request("ci", networks=tuple(parse_network(text) for text in networks))


def test_the_manifest_names_single_addresses_and_no_networks() -> None:
    addresses = [{"remoteType": "address", "address": text} for text in ("10.0.0.4", "10.0.0.5")]
    assert edit(_request("10.0.0.4", "10.0.0.5")).items[0]["source"]["remotes"] == addresses
    for networks in ((), ("10.0.0.0/24",), ("fd00::1",)):
        assert edit(_request(*networks)).items[0]["source"]["remotes"] == [{"remoteType": "any"}]


def test_the_cli_and_terraform_keep_to_the_networks() -> None:
    assert "10.0.0.0/24" in commands(_request("10.0.0.0/24")).open[0].words
    made = blocks(_request("10.0.0.0/24"))[-1].attributes
    assert made is not None
    assert made["remote"] == "10.0.0.0/24"


def test_without_networks_the_cli_opens_nothing() -> None:
    with pytest.raises(AssetError, match="UMB162"):
        commands(_request())
