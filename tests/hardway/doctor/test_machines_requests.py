"""Requests for certificates that are pending on a real API, as the doctor tells of them: nothing is approved."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.api_stock import Stock
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.live_site import live_site
from tests.support.signing_requests import pem

from umbilical.cluster.csr import KIND
from umbilical.cluster.csr_policy import CLIENT_SIGNER
from umbilical.hardway.doctor.machines import requests_signal
from umbilical.hardway.site import Site
from umbilical.hardway.stages.live import started_key
from umbilical.hardway.state import State

pytestmark = pytest.mark.real(*PROGRAMS)


@pytest.fixture
def site(tmp_path: Path, plane: ControlPlane) -> Iterator[Site]:
    made = live_site(tmp_path, plane)
    made.notes[started_key(made.cluster.masters[0])] = datetime.now(UTC).isoformat()
    plane.kubectl("delete", "csr", "--all")
    yield made
    plane.kubectl("delete", "csr", "--all")


def file_request(plane: ControlPlane, name: str, node: str) -> None:
    spec = {
        "request": base64.b64encode(pem(f"system:node:{node}")).decode(),
        "signerName": CLIENT_SIGNER,
        "usages": ["digital signature", "client auth"],
    }
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    Stock(plane.kubeconfig).call(lambda client: client.request("POST", KIND.path(), body=body))


def test_a_request_that_no_rule_approves_is_told_with_the_first_that_does_not_hold(
    site: Site, plane: ControlPlane
) -> None:
    assert list(requests_signal(site, State())) == []
    file_request(plane, "node-csr-stranger", "stranger.example.com")
    (found,) = requests_signal(site, State())
    assert found.what == "node-csr-stranger is pending, and no rule approves it"
    assert "stranger.example.com" in found.why
    assert plane.kubectl("get", "csr", "node-csr-stranger", "-o", "jsonpath={.status.conditions}") == ""
