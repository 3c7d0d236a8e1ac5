"""A site: where stages find the API at an address, and what is rendered."""

from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.support.made_up_stages import make_site

from umbilical.assets.tree import Asset


def test_the_api_is_asked_at_the_address_that_is_named_and_else_through_the_load_balancer(tmp_path: Path) -> None:
    site = make_site(tmp_path, kubeconfig=lambda address: tmp_path / str(address or "balancer"))
    assert site.api().kubeconfig.name == "balancer"
    assert site.api(ip_address("192.0.2.7")).kubeconfig.name == "192.0.2.7"


def test_content_is_what_was_rendered(tmp_path: Path) -> None:
    site = make_site(tmp_path, assets={"tls/a.crt": Asset("tls/a.crt", b"a certificate", 0o644)})
    assert site.content("tls/a.crt") == b"a certificate"
    with pytest.raises(KeyError):
        site.content("tls/b.crt")
