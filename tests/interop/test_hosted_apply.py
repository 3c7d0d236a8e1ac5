"""`umbilical hosted render`, then `hosted apply`, into a real kube-apiserver: all of it, twice, and changed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane

from umbilical.assets.hosted.spec_example import EXAMPLE

PROGRAM: Final = str(Path(sys.executable).parent / "umbilical")
NAMESPACE: Final = "clusters-guest"
SECONDS: Final = 180.0
pytestmark = pytest.mark.real(*PROGRAMS)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One cluster for both parts: their objects have names and namespaces of their own."""
    with control_plane(tmp_path_factory.mktemp("control-plane")) as plane:
        plane.kubectl("create", "namespace", NAMESPACE)
        yield plane


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rendered")
    spec = EXAMPLE.replace("keyType: rsa-2048", "keyType: ecdsa-p256")
    spec = spec.replace("strategy: route", "strategy: nodeport").replace("  # port: 443", "  port: 30091")
    (folder / "spec.yaml").write_text(spec)
    command = [PROGRAM, "hosted", "render", "--spec", str(folder / "spec.yaml"), "--out", str(folder / "out")]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    # What needs CRDs is another test's, and so is the token that only a controller-manager makes.
    monitors = ("servicemonitor-", "podmonitor-", "prometheusrule-")
    left_out = (*monitors, "secret-konnectivity-proxy-token", "configmap-konnectivity-proxy-kubeconfig")
    for path in (folder / "out").rglob("*.yaml"):
        if path.name.startswith(left_out):
            path.unlink()
    return folder / "out"


def apply(plane: ControlPlane, folder: Path, *arguments: str) -> tuple[int, dict[str, list[str]], str]:
    """Run it; return status, objects by what became of them, and everything that was printed."""
    command = [PROGRAM, "hosted", "apply", str(folder), "-o", "json", *arguments]
    command += ["--kubeconfig", str(plane.kubeconfig), "--management-kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    outcomes: dict[str, list[str]] = {}
    for row in json.loads(done.stdout)["objects"] if done.stdout else ():
        outcomes.setdefault(row["outcome"], []).append(f"{row['object']} {row['detail']}".strip())
    return done.returncode, outcomes, done.stdout + done.stderr


def secrets(folder: Path) -> list[dict[str, Any]]:
    import yaml

    return [yaml.safe_load(path.read_text()) for path in folder.rglob("secret-*.yaml")]


def test_everything_is_created_then_unchanged_then_only_what_changed_is_changed(
    plane: ControlPlane, rendered: Path
) -> None:
    status, dry, _ = apply(plane, rendered, "--dry-run=server")
    assert (status, set(dry) - {"changed"}) == (0, {"created"}), dry
    assert plane.kubectl("-n", NAMESPACE, "get", "secrets", "-o", "name") == ""

    status, first, printed = apply(plane, rendered)
    assert (status, "refused" in first) == (0, False), first
    assert any(one.startswith(f"Secret {NAMESPACE}/konnectivity-client") for one in first["created"])
    assert any(one.startswith("DaemonSet kube-system/konnectivity-agent") for one in first["created"])
    found = secrets(rendered)
    assert found
    for secret in found:
        assert not [key for key, value in secret.get("data", {}).items() if value in printed]

    status, second, _ = apply(plane, rendered)
    assert (status, set(second)) == (0, {"unchanged"}), second

    daemon_set = next(rendered.rglob("daemonset-konnectivity-agent.yaml"))
    daemon_set.write_text(daemon_set.read_text().replace("--v=3", "--v=2"))
    status, third, _ = apply(plane, rendered)
    assert (status, third["changed"]) == (0, ["DaemonSet kube-system/konnectivity-agent"])
    assert "refused" not in third


def test_rights_that_are_missing_are_told_for_every_object(plane: ControlPlane, rendered: Path) -> None:
    nobody = plane.make_kubeconfig("nobody-at-all")
    command = [PROGRAM, "hosted", "apply", str(rendered), "--kubeconfig", str(nobody)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert done.stdout.count("HTTP 403 Forbidden") == done.stdout.count("  refused") > 5
