"""`umbilical hosted apply`: directories to clusters, a row for each object, no Secret anywhere in the output."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.hosted import conftest as hosted_fixtures
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.cli.main import run

plane = hosted_fixtures.plane
Capture = pytest.CaptureFixture[str]


def write(path: Path, kind: str, name: str, namespace: str | None = None, **content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "metadata": meta, **content}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small rendering, with a name of its own for each test."""
    place = f"apply-{abs(hash(tmp_path)) % 10**9}"
    write(tmp_path / "management" / "b.yaml", "Secret", "s", place, stringData={"tls.key": "a private key"})
    write(tmp_path / "management" / "z.yaml", "Namespace", place)
    write(tmp_path / "hosted" / "a.yaml", "ConfigMap", place, "kube-system", data={"a": "1"})
    return tmp_path


def apply(folder: Path, *arguments: object) -> int:
    return run(["hosted", "apply", str(folder), *map(str, arguments)])


def test_a_cluster_must_be_named(folder: Path, capsys: Capture) -> None:
    assert apply(folder) == 2
    assert "--management-kubeconfig" in capsys.readouterr().err


def test_a_directory_for_a_named_cluster_must_be_there(tmp_path: Path, capsys: Capture) -> None:
    assert apply(tmp_path, "--kubeconfig", "k") == 3
    assert "UMB565" in capsys.readouterr().err


def test_a_broken_file_of_one_cluster_leaves_both_alone(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    (folder / "hosted" / "broken.yaml").write_text("{")
    # Neither kubeconfig is there: it would be another error if one were opened.
    assert apply(folder, "--kubeconfig", "/none", "--management-kubeconfig", "/none") == 3
    assert "broken.yaml is no manifest" in capsys.readouterr().err


@pytest.mark.real(*PROGRAMS)
def test_both_clusters_get_their_own_in_order_and_secrets_are_not_shown(
    plane: ControlPlane, folder: Path, capsys: Capture
) -> None:
    both = ["--kubeconfig", plane.kubeconfig, "--management-kubeconfig", plane.kubeconfig]
    assert apply(folder, *both) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()[:3]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("management", "Namespace", "created"),
        ("management", "Secret", "created"),
        ("hosted", "ConfigMap", "created"),
    ]
    assert out.splitlines()[-1] == "3 objects: 3 created"
    assert "private" not in out + err
    assert apply(folder, *both) == 0
    assert "3 unchanged" in capsys.readouterr().out


@pytest.mark.real(*PROGRAMS)
def test_a_dry_run_stores_nothing_and_says_so(plane: ControlPlane, folder: Path, capsys: Capture) -> None:
    assert apply(folder, "--management-kubeconfig", plane.kubeconfig, "--dry-run", "server", "-o", "json") == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["dryRun"] is True
    assert [row["outcome"] for row in report["objects"]] == ["created", "not checked"]
    assert "hosted is left alone" in err
    name = json.loads((folder / "management" / "z.yaml").read_text())["metadata"]["name"]
    assert plane.kubectl("get", "namespace", name, "--ignore-not-found") == ""


@pytest.mark.real(*PROGRAMS)
def test_a_refusal_is_status_1_with_a_reason_and_a_way_out(plane: ControlPlane, folder: Path, capsys: Capture) -> None:
    write(folder / "hosted" / "odd.yaml", "Gadget", "g", "kube-system")
    assert apply(folder, "--kubeconfig", plane.kubeconfig) == 1
    out = capsys.readouterr().out
    assert "refused\n    why: this cluster does not serve Gadget of v1\n    next: " in out
    assert out.splitlines()[-1].endswith("1 created, 1 refused")


def test_patches_that_are_not_applied_are_told(folder: Path, capsys: Capture) -> None:
    (folder / "management" / "patches").mkdir()
    assert apply(folder, "--management-kubeconfig", "/no/such/kubeconfig") == 3
    assert "patches is not applied" in capsys.readouterr().err
