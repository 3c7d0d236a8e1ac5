"""Which configuration is taken, and how a bad one is reported."""

import sys
from pathlib import Path

import pytest

from umbilical.cluster.errors import ClusterError
from umbilical.cluster.kubeconfig import is_loopback, load

GOOD = """
clusters: [{name: c, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def _fault(path: Path | None) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        load(path)
    return caught.value


def _write(folder: Path, content: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(content)
    return path


def test_the_current_context_is_taken(tmp_path: Path) -> None:
    config = load(_write(tmp_path, GOOD))
    assert config.cluster.server == "https://10.0.0.1:6443"
    assert config.user is not None
    assert config.user.token == "t"


def test_a_context_without_a_user_is_usable(tmp_path: Path) -> None:
    assert load(_write(tmp_path, GOOD.replace(", user: u", ""))).user is not None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("]", "while parsing"),
        ("", "NoneType"),
        ("{}", "clusters"),
        (GOOD.replace("current-context: x", ""), "No current context"),
        (GOOD.replace("current-context: x", "current-context: y"), "Context 'y' not found"),
        (GOOD.replace("cluster: c,", "cluster: d,"), "'d'"),
        (GOOD.replace("token: t", "token: 7"), "Expected `str"),
    ],
    ids=["no-yaml", "empty", "no-clusters", "no-context", "wrong-context", "wrong-cluster", "wrong-type"],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, content: str, why: str) -> None:
    fault = _fault(_write(tmp_path, content))
    assert fault.code == "UMB601"
    assert str(tmp_path) in fault.what
    assert why in fault.why


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "not found" in _fault(tmp_path / "absent").why


def test_outside_a_pod_a_kubeconfig_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    fault = _fault(None)
    assert fault.code == "UMB602"
    assert "--kubeconfig" in fault.remedy


def test_without_lightkube_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightkube", None)
    fault = _fault(None)
    assert fault.code == "UMB605"
    assert "umbilical[k8s]" in fault.remedy


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("https://127.0.0.1:6443", True),
        ("https://127.8.8.8", True),
        ("https://[::1]:6443", True),
        ("https://localhost:6443", True),
        ("https://10.0.0.1:6443", False),
        ("https://api.example", False),
    ],
)
def test_only_this_machine_is_loopback(server: str, expected: bool) -> None:
    assert is_loopback(server) is expected
