"""`umbilical hosted apply`: directories to clusters, a row for each object, no Secret anywhere in the output."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hosted import conftest as hosted_fixtures
from tests.support.control_plane import PROGRAMS, ControlPlane

from umbilical.assets.hosted.sidecar_access import KUBECONFIG_MAP, TOKEN_SECRET
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


@pytest.fixture
def sidecars(folder: Path, plane: ControlPlane) -> Iterator[Path]:
    """The same with what sidecars need: the kubeconfig that names a token, and the Secret that it is made in."""
    place = json.loads((folder / "management" / "z.yaml").read_text())["metadata"]["name"]
    write(folder / "management" / "k.yaml", "ConfigMap", KUBECONFIG_MAP, place, data={"kubeconfig": "{}"})
    write(folder / "hosted" / "t.yaml", "Secret", TOKEN_SECRET, "kube-system")
    yield folder
    plane.kubectl("-n", "kube-system", "delete", "secret", TOKEN_SECRET, "--ignore-not-found")


def both_of(plane: ControlPlane) -> list[object]:
    return ["--kubeconfig", plane.kubeconfig, "--management-kubeconfig", plane.kubeconfig]


@pytest.mark.real(*PROGRAMS)
def test_the_sidecars_token_is_one_more_row_and_is_not_shown(
    plane: ControlPlane, sidecars: Path, capsys: Capture
) -> None:
    token = base64.b64encode(b"a-very-secret-token").decode()
    write(
        sidecars / "hosted" / "t.yaml", "Secret", TOKEN_SECRET, "kube-system", data={"token": token, "ca.crt": "Y2E="}
    )
    assert apply(sidecars, *both_of(plane)) == 0
    out, err = capsys.readouterr()
    row = out.splitlines()[-3].split()
    assert (row[0], row[1], row[-1]) == ("management", "Secret", "created")
    assert row[2].endswith(f"/{TOKEN_SECRET}")
    assert token not in out + err
    assert "copied" not in err
    assert apply(sidecars, *both_of(plane), "-o", "json") == 0
    out, _ = capsys.readouterr()
    last = json.loads(out)["objects"][-1]
    assert (last["cluster"], last["outcome"]) == ("management", "unchanged")
    assert token not in out


@pytest.mark.real(*PROGRAMS)
def test_a_token_that_does_not_come_is_status_1_with_a_reason_and_a_way_out(
    plane: ControlPlane, sidecars: Path, capsys: Capture
) -> None:
    assert apply(sidecars, *both_of(plane), "--token-timeout", "0s") == 1
    out = capsys.readouterr().out
    assert "not copied\n    why: the hosted cluster has put no token into Secret kube-system/" in out
    assert "    next: see that its kube-controller-manager runs" in out
    assert out.splitlines()[-1].endswith("5 created, 1 not copied")


@pytest.mark.real(*PROGRAMS)
def test_a_dry_run_does_not_check_the_token(plane: ControlPlane, sidecars: Path, capsys: Capture) -> None:
    assert apply(sidecars, *both_of(plane), "--dry-run", "server") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"/{TOKEN_SECRET} " in lines[-4]
    assert lines[-4].endswith("  not checked")
    assert lines[-3].startswith("    why: ")


@pytest.mark.real(*PROGRAMS)
def test_with_one_cluster_it_is_said_what_is_left_to_do(plane: ControlPlane, sidecars: Path, capsys: Capture) -> None:
    place = json.loads((sidecars / "management" / "z.yaml").read_text())["metadata"]["name"]
    for option, where in (("--kubeconfig", "the control-plane namespace"), ("--management-kubeconfig", place)):
        assert apply(sidecars, option, plane.kubeconfig) == 0
        out, err = capsys.readouterr()
        assert f"kube-system/{TOKEN_SECRET} of the hosted cluster is copied to {where}: apply with both" in err
        assert f"{place}/{TOKEN_SECRET}" not in out


def test_without_sidecars_nothing_is_said_of_a_token(folder: Path, capsys: Capture) -> None:
    assert apply(folder, "--management-kubeconfig", "/no/such/kubeconfig") == 3
    assert "copied" not in capsys.readouterr().err
