"""`umbilical pki secrets` before the real kube-apiserver, with the rights that the chart gives its Job, and no more."""

import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from tests.support.chart_objects import named, rendering
from tests.support.commands import Run, Told, runner
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.fixture_types import Captured

import chart
from umbilical.fault import HostError
from umbilical.pki.certificate import read_certificates
from umbilical.pki.validation import is_signed_by

pytestmark = pytest.mark.real(*PROGRAMS)
ACCOUNT: Final = "umbilical-certificates"
USER: Final = f"system:serviceaccount:{chart.NAMESPACE}:{ACCOUNT}"
NAMES: Final = ("server", "agent", "client")
ADDRESSES: Final = ("--address=tunnel.example", "--address=10.0.0.9")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def secrets(plane: ControlPlane, capfd: Captured) -> Iterator[Run]:
    """Run the command in a new namespace as the account of the chart's CronJob."""
    objects = rendering("default")
    rights = [named(objects, kind)[ACCOUNT] for kind in ("ServiceAccount", "Role", "RoleBinding")]
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.NAMESPACE}}, *rights)
    flags = [f"--{name}-secret=umbilical-{name}" for name in ("ca", *NAMES)]
    run = runner(capfd)
    yield partial(run, "pki", "secrets", f"--kubeconfig={plane.make_kubeconfig(USER)}", "-n", chart.NAMESPACE, *flags)
    plane.kubectl("delete", "secrets", "--all", "-n", chart.NAMESPACE)


def content(plane: ControlPlane, name: str) -> dict[str, bytes]:
    found = json.loads(plane.kubectl("get", "secret", f"umbilical-{name}", "-n", chart.NAMESPACE, "-o", "json"))
    assert found["type"] == "kubernetes.io/tls"
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


def written(told: Told) -> dict[str, str]:
    return {name: why for name, _, why in (line.partition(": ") for line in told.err.splitlines())}


def test_four_secrets_are_made_and_the_next_run_changes_nothing(plane: ControlPlane, secrets: Run) -> None:
    assert written(secrets(*ADDRESSES)) == {
        "umbilical-ca": "created",
        **{f"umbilical-{name}": "written: there was none" for name in NAMES},
    }
    before = {name: content(plane, name) for name in ("ca", *NAMES)}
    authority = read_certificates(before["ca"]["tls.crt"])[0]
    for name in NAMES:
        leaf = read_certificates(before[name]["tls.crt"])[0]
        assert (leaf.common_name, is_signed_by(leaf, authority)) == (f"konnectivity-{name}", True)
        assert before[name]["ca.crt"] == before["ca"]["tls.crt"]
    assert set(read_certificates(before["server"]["tls.crt"])[0].names) == {"tunnel.example", "10.0.0.9"}
    assert written(secrets(*ADDRESSES)) == {f"umbilical-{name}": "unchanged" for name in NAMES}
    assert {name: content(plane, name) for name in ("ca", *NAMES)} == before


def test_a_new_address_replaces_the_server_s_certificate_alone(plane: ControlPlane, secrets: Run) -> None:
    secrets(*ADDRESSES)
    before = {name: content(plane, name) for name in NAMES}
    told = written(secrets(*ADDRESSES, "--address=10.0.0.10"))
    assert told["umbilical-server"] == "written: its names changed: 10.0.0.10"
    assert [name for name in NAMES if content(plane, name) != before[name]] == ["server"]


def test_a_bundle_of_cas_in_the_ca_s_secret_reaches_every_secret(plane: ControlPlane, secrets: Run) -> None:
    secrets(*ADDRESSES)
    ca = content(plane, "ca")
    bundle = base64.b64encode(ca["tls.crt"] * 2).decode()
    change = json.dumps({"data": {"tls.crt": bundle}})
    plane.kubectl("patch", "secret", "umbilical-ca", "-n", chart.NAMESPACE, "--type=merge", "-p", change)
    before = content(plane, "agent")
    assert set(written(secrets(*ADDRESSES)).values()) == {"written: the CA changed"}
    assert content(plane, "agent") == {**before, "ca.crt": ca["tls.crt"] * 2}


def test_a_ca_without_its_key_is_reported_and_nothing_is_written(plane: ControlPlane, secrets: Run) -> None:
    plane.kubectl("create", "secret", "generic", "umbilical-ca", "-n", chart.NAMESPACE, "--from-literal=tls.crt=x")
    told = secrets(*ADDRESSES, status=3)
    assert told.err.splitlines()[:2] == [
        "UMB158 Secret umbilical/umbilical-ca holds no usable CA",
        "  why: it lacks tls.key",
    ]
    with pytest.raises(HostError, match="NotFound"):
        content(plane, "server")


def test_a_certificate_of_another_manager_is_not_overwritten(plane: ControlPlane, secrets: Run) -> None:
    secrets(*ADDRESSES)
    change = json.dumps({"data": {"tls.crt": base64.b64encode(b"mine").decode()}})
    plane.kubectl("patch", "secret", "umbilical-agent", "-n", chart.NAMESPACE, "--type=merge", "-p", change)
    told = secrets(*ADDRESSES, status=4)
    assert "conflict" in told.err
    assert content(plane, "agent")["tls.crt"] == b"mine"


def test_the_account_reads_no_other_secret(plane: ControlPlane, secrets: Run) -> None:
    plane.kubectl("create", "secret", "generic", "other", "-n", chart.NAMESPACE, "--from-literal=a=b")
    told = secrets(*ADDRESSES, "--agent-secret=other", status=4)
    assert "forbidden" in told.err
    for verb in ("list", "delete", "update"):
        with pytest.raises(HostError):
            plane.kubectl("auth", "can-i", verb, "secrets", f"--as={USER}", "-n", chart.NAMESPACE)


def test_without_an_address_the_command_is_refused(capfd: Captured, tmp_path: Path) -> None:
    told = runner(capfd)("pki", "secrets", "-n", "tunnel", status=2)
    assert "--address" in told.err
