"""`umbilical hosted`: render, apply, check."""

import asyncio
import base64
import ipaddress
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.hosted import conftest as hosted_fixtures
from tests.hosted.conftest import Tunnel
from tests.hosted.test_clusters import serving
from tests.hosted.test_gather import kubelet
from tests.support.commands import Run
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.fixture_types import Captured
from tests.support.hosted_specs import hosted_spec
from tests.support.hosted_workloads import as_bytes, container, deployment
from tests.support.scripted_api import Answer, Request, ScriptedApi, json_answer
from tests.support.tunnel_files import entrance
from tests.support.tunnel_pair import free_port
from tests.support.tunnel_pki import FolderAuthority

from umbilical.cli import main
from umbilical.cli.hosted import render as certificates
from umbilical.cli.hosted.render import addresses, keep, print_changes, with_looked_up
from umbilical.fault import PkiError
from umbilical.hosted.objects.sidecars import KUBECONFIG_MAP, TOKEN_SECRET
from umbilical.hosted.objects.spec import AggregatedApi, HostedSpec, Pki
from umbilical.hosted.objects.spec_reading import EXAMPLE
from umbilical.hosted.pki.certificate_set import HostedSetRenewal
from umbilical.hosted.pki.table import AGENT, CLUSTER
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType


def test_each_command_has_its_help(umbilical: Run) -> None:
    for name in main.GROUPS["hosted"][1]:
        assert umbilical("hosted", name, "--help").out.startswith(f"Usage: umbilical hosted {name}")


SPEC = hosted_spec(aggregated_apis=(AggregatedApi("named"),))


def service(name: str, *texts: str, label: str = "") -> dict[str, Any]:
    labels = {"umbilical.dev/aggregated-api": label} if label else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"clusterIPs": list(texts)}}


def test_services_are_found_by_name_and_by_label() -> None:
    named, labelled = service("named", "172.30.0.1", "fd00::1"), service("labelled", "172.30.0.2", label="true")
    others = [service("other", "fd00::3"), service("x", "172.30.0.2", label="false")]
    found = addresses([named, labelled, *others], SPEC)
    assert found == {
        "named": (ipaddress.ip_address("172.30.0.1"), ipaddress.ip_address("fd00::1")),
        "labelled": (ipaddress.ip_address("172.30.0.2"),),
    }


def test_a_service_without_an_address_is_left_out() -> None:
    for body in ({}, {"clusterIP": ""}, {"clusterIP": "None", "clusterIPs": ["None"]}, {"type": "ExternalName"}):
        assert addresses([{"metadata": {"name": "named"}, "spec": body}], SPEC) == {}


async def test_only_the_control_planes_namespace_is_asked(tmp_path: Path) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return json_answer({"kind": "ServiceList", "metadata": {}, "items": [service("named", "172.30.0.1")]})

    async with ScriptedApi(answer) as api:
        found = await asyncio.to_thread(with_looked_up, SPEC, api.write_kubeconfig(tmp_path))
    assert [str(one) for one in found.known_addresses] == ["172.30.0.1"]
    assert {request.path for request in asked} == {"/api/v1/namespaces/clusters-guest/services"}


HOSTED_SPEC = hosted_spec(pki=Pki(key_type=KeyType.ECDSA_P256))


def renewed(
    folder: Path | None, spec: HostedSpec = HOSTED_SPEC, days: int = 0, *, rotate: bool = False
) -> HostedSetRenewal:
    now = datetime.now(UTC) + timedelta(days=days)
    return certificates.renewed(spec, folder, "cryptography", rotate=rotate, retire=False, now=now)


def kept(folder: Path) -> HostedSetRenewal:
    renewal = renewed(folder)
    keep(renewal, folder)
    return renewal


def test_names_and_lives_come_from_the_spec() -> None:
    certificate = read_certificates(renewed(None).set.leaves[CLUSTER.id].certificate)[0]
    assert certificate.names == HOSTED_SPEC.agent_listener_names
    assert (certificate.not_after - certificate.not_before).days == 365


def test_what_is_kept_is_its_owners_alone_and_taken_up_again_until_it_is_due(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    first = kept(folder)
    assert len(first.changes) == 9
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = kept(folder)
    assert again.changes == ()
    assert again.set == first.set
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    renewal = renewed(folder, days=300)
    keep(renewal, folder)
    assert (folder / f"{AGENT.id}.crt").read_bytes() == renewal.set.leaves[AGENT.id].certificate
    assert renewal.set.leaves[AGENT.id] != first.set.leaves[AGENT.id]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("somebody else's")
    with pytest.raises(PkiError, match="UMB553"):
        renewed(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ca.crt"]


def test_keys_that_nobody_keeps_are_told_of(capsys: Captured) -> None:
    print_changes(renewed(None), None)
    assert "--pki DIR" in capsys.readouterr().err


def test_the_steps_of_a_rotation_are_told(tmp_path: Path, capsys: Captured) -> None:
    kept(tmp_path)
    print_changes(renewed(tmp_path, rotate=True), tmp_path)
    told = capsys.readouterr()
    assert told.out == ""
    assert "--retire-signers" in told.err


SMALL = EXAMPLE.replace("keyType: rsa-2048", "keyType: ecdsa-p256")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec with a key type that is generated quickly."""
    path = tmp_path / "guest.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def render(umbilical: Run) -> Run:
    return partial(umbilical, "hosted", "render")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_example_is_printed_and_can_be_rendered(tmp_path: Path, render: Run) -> None:
    printed = render("--example").out
    assert printed == EXAMPLE
    (tmp_path / "spec.yaml").write_text(printed)
    render("--spec", tmp_path / "spec.yaml", "--out", tmp_path / "out")


def test_each_file_is_written_with_its_mode_and_told_in_a_line(spec: Path, tmp_path: Path, render: Run) -> None:
    lines = [line.split() for line in render("--spec", spec, "--out", tmp_path / "out").lines]
    assert len(lines) == len(contents(tmp_path / "out"))
    for mode, size, path in lines:
        file = tmp_path / "out" / path
        assert f"{file.stat().st_mode & 0o777:04o}" == mode
        assert file.stat().st_size == int(size)
    assert {mode for mode, _, path in lines if "/secret-" in path} == {"0600"}


def test_objects_are_printed_and_nothing_is_written(spec: Path, tmp_path: Path, render: Run) -> None:
    documents: list[Any] = list(yaml.safe_load_all(render("--spec", spec, "--out", "-").out))
    assert len(documents) > 30
    assert all(document["metadata"]["name"] for document in documents)
    assert [path.name for path in tmp_path.iterdir()] == ["guest.yaml"]


def test_certificates_that_are_kept_make_a_second_rendering_the_same(spec: Path, tmp_path: Path, render: Run) -> None:
    for name in ("one", "two"):
        render("--spec", spec, "--out", tmp_path / name, "--pki", tmp_path / "pki")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_kustomize_gets_its_files(spec: Path, tmp_path: Path, render: Run) -> None:
    render("--spec", spec, "--out", tmp_path / "out", "--format", "kustomize")
    found = [path for path in contents(tmp_path / "out") if path.endswith("kustomization.yaml")]
    assert found == [
        "hosted/kustomization.yaml",
        "management/kustomization.yaml",
        "management/patches/kustomization.yaml",
    ]


def test_a_manifest_is_found_beside_the_spec(spec: Path, tmp_path: Path, render: Run) -> None:
    (tmp_path / "kas.yaml").write_bytes(as_bytes(deployment()))
    spec.write_text(SMALL.replace("  # manifest: kube-apiserver.yaml", "  manifest: kas.yaml"))
    render("--spec", spec, "--out", tmp_path / "out")
    patched = yaml.safe_load((tmp_path / "out/management/deployment-kube-apiserver.yaml").read_bytes())
    assert container(patched, "konnectivity-server")


def test_bad_input_changes_nothing(spec: Path, tmp_path: Path, render: Run) -> None:
    for change in (("replicas: 3", "replicas: 0"), ("  # manifest: kube-apiserver.yaml", "  manifest: none.yaml")):
        spec.write_text(SMALL.replace(*change))
        told = render("--spec", spec, "--out", tmp_path / "out", "--pki", tmp_path / "pki", status=3)
        assert told.err.count("\n") == 3
        assert [path.name for path in tmp_path.iterdir()] == ["guest.yaml"]


def test_files_that_exist_are_not_replaced_and_certificates_then_stay_too(
    spec: Path, tmp_path: Path, render: Run
) -> None:
    arguments = ("--spec", spec, "--out", tmp_path / "out", "--pki", tmp_path / "pki")
    render(*arguments)
    before = contents(tmp_path)
    assert "UMB801" in render(*arguments, "--rotate-signers", status=3).err
    assert contents(tmp_path) == before
    render(*arguments, "--rotate-signers", "--overwrite")
    assert contents(tmp_path) != before


def test_files_of_an_earlier_rendering_are_told_of(spec: Path, tmp_path: Path, render: Run) -> None:
    render("--spec", spec, "--out", tmp_path / "out")
    spec.write_text(SMALL.replace("strategy: route", "strategy: loadbalancer"))
    told = render("--spec", spec, "--out", tmp_path / "out", "--overwrite")
    assert "management/route-konnectivity-server.yaml is not part of this rendering" in told.err


def test_signers_are_changed_in_a_directory_only(spec: Path, tmp_path: Path, render: Run) -> None:
    for flag in ("--rotate-signers", "--retire-signers"):
        render("--spec", spec, "--out", tmp_path / "out", flag, status=2)


def test_what_is_left_out_is_told(spec: Path, tmp_path: Path, render: Run) -> None:
    spec.write_text(SMALL.replace("    addresses: [172.30.12.7]\n", ""))
    told = render("--spec", spec, "--out", tmp_path / "out")
    assert "note: the addresses of openshift-apiserver are not known" in told.err


def test_a_spec_that_is_not_there_is_told(tmp_path: Path, render: Run) -> None:
    assert "UMB002" in render("--spec", tmp_path / "none.yaml", "--out", "-", status=3).err


plane = hosted_fixtures.plane


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


@pytest.fixture
def apply(umbilical: Run) -> Run:
    return partial(umbilical, "hosted", "apply")


def test_a_cluster_must_be_named(folder: Path, apply: Run) -> None:
    assert "--management-kubeconfig" in apply(folder, status=2).err


def test_a_directory_for_a_named_cluster_must_be_there(tmp_path: Path, apply: Run) -> None:
    assert "UMB565" in apply(tmp_path, "--kubeconfig", "k", status=3).err


def test_a_broken_file_of_one_cluster_leaves_both_alone(folder: Path, tmp_path: Path, apply: Run) -> None:
    (folder / "hosted" / "broken.yaml").write_text("{")
    # The kubeconfigs do not exist: opening one would be another error.
    told = apply(folder, "--kubeconfig", "/none", "--management-kubeconfig", "/none", status=3)
    assert "broken.yaml is not a manifest" in told.err


@pytest.mark.real(*PROGRAMS)
def test_both_clusters_get_their_own_in_order_and_secrets_are_not_shown(
    plane: ControlPlane, folder: Path, apply: Run
) -> None:
    both = both_of(plane)
    out, err = apply(folder, *both)
    rows = [line.split() for line in out.splitlines()[:3]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("management", "Namespace", "created"),
        ("management", "Secret", "created"),
        ("hosted", "ConfigMap", "created"),
    ]
    assert out.splitlines()[-1] == "3 objects: 3 created"
    assert "private" not in out + err
    assert "3 unchanged" in apply(folder, *both).out


@pytest.mark.real(*PROGRAMS)
def test_a_dry_run_stores_nothing_and_says_so(plane: ControlPlane, folder: Path, apply: Run) -> None:
    out, err = apply(folder, "--management-kubeconfig", plane.kubeconfig, "--dry-run", "server", "-o", "json")
    report = json.loads(out)
    assert report["dryRun"] is True
    assert [row["outcome"] for row in report["objects"]] == ["created", "not checked"]
    assert "hosted is not applied: --kubeconfig is not given" in err
    name = json.loads((folder / "management" / "z.yaml").read_text())["metadata"]["name"]
    assert plane.kubectl("get", "namespace", name, "--ignore-not-found") == ""


@pytest.mark.real(*PROGRAMS)
def test_a_refusal_is_status_1_with_a_reason_and_a_way_out(plane: ControlPlane, folder: Path, apply: Run) -> None:
    write(folder / "hosted" / "odd.yaml", "Gadget", "g", "kube-system")
    out = apply(folder, "--kubeconfig", plane.kubeconfig, status=1).out
    assert "refused\n    why: this cluster does not serve Gadget of v1\n    next: " in out
    assert out.splitlines()[-1].endswith("1 created, 1 refused")


def test_patches_that_are_not_applied_are_told(folder: Path, apply: Run) -> None:
    (folder / "management" / "patches").mkdir()
    told = apply(folder, "--management-kubeconfig", "/no/such/kubeconfig", status=3).err
    assert "patches is not applied" in told
    assert "copied" not in told, "nothing is said of a token where there are no sidecars"


@pytest.fixture
def sidecars(folder: Path, plane: ControlPlane) -> Iterator[Path]:
    """The same with objects for sidecars: the kubeconfig with a token file, and the token's Secret."""
    place = json.loads((folder / "management" / "z.yaml").read_text())["metadata"]["name"]
    write(folder / "management" / "k.yaml", "ConfigMap", KUBECONFIG_MAP, place, data={"kubeconfig": "{}"})
    write(folder / "hosted" / "t.yaml", "Secret", TOKEN_SECRET, "kube-system")
    yield folder
    plane.kubectl("-n", "kube-system", "delete", "secret", TOKEN_SECRET, "--ignore-not-found")


def both_of(plane: ControlPlane) -> list[object]:
    return ["--kubeconfig", plane.kubeconfig, "--management-kubeconfig", plane.kubeconfig]


@pytest.mark.real(*PROGRAMS)
def test_the_sidecars_token_is_one_more_row_and_is_not_shown(plane: ControlPlane, sidecars: Path, apply: Run) -> None:
    token = base64.b64encode(b"a-very-secret-token").decode()
    write(
        sidecars / "hosted" / "t.yaml", "Secret", TOKEN_SECRET, "kube-system", data={"token": token, "ca.crt": "Y2E="}
    )
    out, err = apply(sidecars, *both_of(plane))
    row = out.splitlines()[-3].split()
    assert (row[0], row[1], row[-1]) == ("management", "Secret", "created")
    assert row[2].endswith(f"/{TOKEN_SECRET}")
    assert token not in out + err
    assert "copied" not in err
    out, _ = apply(sidecars, *both_of(plane), "-o", "json")
    last = json.loads(out)["objects"][-1]
    assert (last["cluster"], last["outcome"]) == ("management", "unchanged")
    assert token not in out


@pytest.mark.real(*PROGRAMS)
def test_a_token_that_does_not_come_is_status_1_with_a_reason_and_a_way_out(
    plane: ControlPlane, sidecars: Path, apply: Run
) -> None:
    out = apply(sidecars, *both_of(plane), "--token-timeout", "0s", status=1).out
    assert "not copied\n    why: timed out after 0 s waiting for the hosted cluster to write a token to Secret" in out
    assert "    next: check that its kube-controller-manager runs" in out
    assert out.splitlines()[-1].endswith("5 created, 1 not copied")


@pytest.mark.real(*PROGRAMS)
def test_a_dry_run_does_not_check_the_token(plane: ControlPlane, sidecars: Path, apply: Run) -> None:
    lines = apply(sidecars, *both_of(plane), "--dry-run", "server").lines
    assert f"/{TOKEN_SECRET} " in lines[-4]
    assert lines[-4].endswith("  not checked")
    assert lines[-3].startswith("    why: ")


@pytest.mark.real(*PROGRAMS)
def test_with_one_cluster_it_is_said_what_is_left_to_do(plane: ControlPlane, sidecars: Path, apply: Run) -> None:
    place = json.loads((sidecars / "management" / "z.yaml").read_text())["metadata"]["name"]
    for option, where in (("--kubeconfig", "the control-plane namespace"), ("--management-kubeconfig", place)):
        out, err = apply(sidecars, option, plane.kubeconfig)
        assert (
            f"kube-system/{TOKEN_SECRET} of the hosted cluster is copied to {where}: run this command with both" in err
        )
        assert f"{place}/{TOKEN_SECRET}" not in out


tunnel_pki, stage, tunnel = hosted_fixtures.tunnel_pki, hosted_fixtures.stage, hosted_fixtures.tunnel


@pytest.fixture
def check(umbilical: Run) -> Run:
    return partial(umbilical, "hosted", "check", "--timeout", "60s")


def test_bad_input_is_refused(check: Run) -> None:
    for arguments, word in (
        ([], "give --kubeconfig, --namespace, --server"),
        (["--namespace", "n"], "must be given together"),
        (["--management-kubeconfig", "k"], "must be given together"),
        (["--node", "10.0.0.1"], "give --kubeconfig, --namespace, --server"),
        (["--health", "nowhere"], "HOST:PORT"),
    ):
        assert word in check(*arguments, status=2).err


def test_the_checks_can_be_listed(check: Run) -> None:
    out = check("--list").out
    assert "Certificates\nC1 " in out
    assert "T3 Logs of pods" in out


def test_what_cannot_be_asked_at_all_is_status_4(tmp_path: Path, check: Run) -> None:
    assert "UMB601" in check("--kubeconfig", tmp_path / "none", status=4).out
    check("--health", f"127.0.0.1:{free_port()}", status=4)
    out = check("--server", "unix:/no/such/socket", status=4).out
    assert "0 passed, 0 failed" in out


def test_a_tunnel_that_works_is_status_0_and_what_was_not_looked_at_is_named(
    tunnel: Tunnel, tmp_path: Path, check: Run
) -> None:
    with kubelet(FolderAuthority(tmp_path), 200) as port, serving({"/readyz": (200, b"ok")}) as proxy:
        options = [*entrance(tunnel.access), "--node", "127.0.0.1", "--kubelet-port", port]
        out = check(*options, "--proxy-health", f"127.0.0.1:{proxy}").out
    assert "T1 Every node's kubelet is reached through every server." in out
    assert "skipped: --kubeconfig is not given" in out
    assert "2 passed, 0 failed, 0 warned, 14 skipped" in out


def test_a_finding_is_status_1_in_every_form(tunnel: Tunnel, check: Run) -> None:
    pki = tunnel.pki
    agent = ["--agent-cert", pki.agent.certificate, "--agent-key", pki.agent.key]
    arguments = [*entrance(tunnel.access), *agent, "--node", "127.0.0.1", "--kubelet-port", free_port()]
    out = check(*arguments, status=1).out
    assert "UMB501 dial" in out
    assert "accepts it" in out
    report = check(*arguments, "-o", "json", status=1).json()
    assert report["kind"] == "HostedReport"
    assert report["summary"]["failed"] == 2
    root = ElementTree.fromstring(check(*arguments, "-o", "junit", status=1).out)
    assert root.attrib["failures"] == "2"
