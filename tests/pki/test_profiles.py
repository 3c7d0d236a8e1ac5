"""Names as users give them, sorted into the two kinds that a certificate knows."""

import ipaddress

from umbilical.pki.profiles import KeyType, Usage, client_profile, server_profile, split_names


def test_addresses_and_host_names_are_parted() -> None:
    names, addresses = split_names(["api.example", "10.0.0.1", "::1", "localhost"])
    assert names == ("api.example", "localhost")
    assert addresses == (ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("::1"))


def test_a_name_given_twice_appears_once_and_keeps_its_place() -> None:
    assert split_names(["b", "a", "b", "::1", "0:0:0:0:0:0:0:1"]) == (("b", "a"), (ipaddress.ip_address("::1"),))


def test_a_server_profile_serves_and_a_client_profile_asks() -> None:
    assert server_profile("s", ["localhost"]).usages == (Usage.SERVER,)
    client = client_profile("c", ["system:masters"], KeyType.ECDSA_P256)
    assert client.usages == (Usage.CLIENT,)
    assert client.organizations == ("system:masters",)
    assert client.key_type is KeyType.ECDSA_P256
    assert client.dns_names == ()
