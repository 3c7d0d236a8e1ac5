"""Tokens and credentials of a namespace."""

import asyncio
import base64
import json
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.test_objects import scripted
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.hosted_certificates import hosted_set
from tests.support.hosted_specs import hosted_spec
from tests.support.manual_clock import ManualClock
from tests.support.scripted_api import Answer, Request, json_answer, run_async, status_answer

import peers
from umbilical.cluster.apply import ManifestDocument, read_document
from umbilical.cluster.client import make_client
from umbilical.fault import ApiRefused, ClusterError, HostedError
from umbilical.host.files import write_file
from umbilical.host.processes import start
from umbilical.hosted.access import FRONTEND, KUBELET, CredentialNames, fetch_tls, private_directory
from umbilical.hosted.apply import (
    POLL_SECONDS,
    ApplyOptions,
    ApplyOutcome,
    ApplyResult,
    TokenCopy,
    TokenWait,
    copy_token,
    has_source,
    planned_copy,
)
from umbilical.hosted.objects.render import hosted_objects, management_objects
from umbilical.hosted.objects.sidecars import KUBECONFIG_KEY, TOKEN_SECRET, hosted_access, management_access
from umbilical.hosted.objects.spec import HostedSpec
from umbilical.proxies.services import KubernetesServices
from umbilical.tunnel.settings import TlsFiles

SECRET = {"tls.crt": "a certificate", "tls.key": "a key"}


def encoded(values: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}


def api(secret: dict[str, Any] | None, bundle: dict[str, Any] | None) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        data = secret if "/secrets/" in request.path else bundle
        return status_answer(404, "NotFound") if data is None else json_answer({"data": data})

    return answer


def fetched(answer: Callable[[Request], Answer], folder: Path, purpose: CredentialNames = FRONTEND) -> TlsFiles:
    files, _ = scripted(answer, lambda client: fetch_tls(client, "clusters-a", purpose, folder), folder)
    return files


def test_a_private_directory_is_ours_alone_and_goes_whatever_happens() -> None:
    folders: list[Path] = []

    def use() -> None:
        with private_directory() as folder:
            folders.append(folder)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            (folder / "key").write_text("a key")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert not folders[0].exists()


def test_it_goes_when_the_program_is_asked_to_end() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        script = (
            "import time; from umbilical.hosted.access import private_directory\n"
            "with private_directory() as folder:\n"
            "    (folder / 'key').write_text('a key')\n"
            "    print(folder, flush=True)\n"
            "    time.sleep(60)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            folder = Path(process.stdout.readline().strip())
            assert (folder / "key").exists()
            process.send_signal(number)
            assert process.wait(60) != 0
        assert not folder.exists()


def test_pair_and_authority_are_written_for_us_alone(tmp_path: Path) -> None:
    files = fetched(api(encoded(SECRET), {"ca.crt": "a CA"}), tmp_path)
    written = [path for path in (files.certificate, files.key, files.authority) if path is not None]
    assert [path.read_text() for path in written] == ["a certificate", "a key", "a CA"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


def test_the_names_are_those_of_the_first_script(tmp_path: Path) -> None:
    answer = api(encoded(SECRET), {"ca.crt": "a CA"})

    async def both(client: Any) -> None:
        await fetch_tls(client, "clusters-a", FRONTEND, tmp_path)
        await fetch_tls(client, "clusters-a", KUBELET, tmp_path)

    _, requests = scripted(answer, both, tmp_path)
    assert [request.path.rpartition("clusters-a/")[2] for request in requests] == [
        "secrets/konnectivity-client",
        "configmaps/konnectivity-ca-bundle",
        "secrets/kas-kubelet-client-crt",
        "configmaps/kubelet-client-ca",
    ]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for secret, bundle, word in (
        (None, {"ca.crt": "a CA"}, "Secret clusters-a/konnectivity-client does not exist"),
        (encoded(SECRET), None, "ConfigMap clusters-a/konnectivity-ca-bundle does not exist"),
        (encoded({"tls.crt": "x"}), {"ca.crt": "a CA"}, "it has no key tls.key"),
        ({**encoded(SECRET), "tls.key": "***"}, {"ca.crt": "a CA"}, "its tls.key is not base64"),
        (encoded(SECRET), {}, "it has no key ca.crt"),
        (encoded(SECRET), {"ca.crt": 7}, "it has no key ca.crt"),
    ):
        with pytest.raises(HostedError) as fault:
            fetched(api(secret, bundle), tmp_path)
        assert fault.value.code == "UMB570"
        assert word in str(fault.value)
        assert "kubectl -n clusters-a" in fault.value.remedy
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("konnectivity")]


def item(kind: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    meta = {"name": name, "namespace": "clusters-a"}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": data}


@pytest.mark.real(*PROGRAMS)
def test_they_come_from_a_real_control_plane_and_rights_are_needed(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusters-a"}},
        item("Secret", "konnectivity-client", encoded(SECRET)),
        item("ConfigMap", "konnectivity-ca-bundle", {"ca.crt": "a CA"}),
    )

    async def fetch(kubeconfig: Path) -> TlsFiles:
        async with make_client(kubeconfig) as client:
            return await fetch_tls(client, "clusters-a", FRONTEND, tmp_path)

    files = run_async(fetch(plane.kubeconfig))
    assert files.key is not None
    assert files.key.read_text() == "a key"
    with pytest.raises(ApiRefused) as refusal:
        run_async(fetch(plane.make_kubeconfig("nobody-in-particular")))
    assert refusal.value.status == 403


TOKEN = "c2VjcmV0LXRva2Vu"
AUTHORITY = "Y2VydGlmaWNhdGU="
FILLED = {"token": TOKEN, "ca.crt": AUTHORITY}
LABELS = {"app.kubernetes.io/part-of": "umbilical"}
PLAIN = hosted_spec(components=())
real = pytest.mark.real(*PROGRAMS)


def documents(contents: list[dict[str, Any]]) -> list[ManifestDocument]:
    return [document for content in contents if (document := read_document(content)) is not None]


def rendered(spec: HostedSpec) -> tuple[list[ManifestDocument], list[ManifestDocument]]:
    certificates = hosted_set()
    return documents(management_objects(spec, certificates)), documents(hosted_objects(spec, certificates))


def test_a_rendering_with_sidecars_says_where_the_copy_goes_and_one_without_needs_none() -> None:
    management, hosted = rendered(hosted_spec())
    copy = planned_copy("management", management)
    assert copy == TokenCopy("management", "clusters-guest", hosted_spec().labels)
    assert copy.subject == f"Secret clusters-guest/{TOKEN_SECRET}"
    assert has_source(hosted)
    management, hosted = rendered(PLAIN)
    assert planned_copy("management", management) is None
    assert not has_source(hosted)


@pytest.fixture
def copy(plane: ControlPlane, tmp_path: Path) -> Iterator[TokenCopy]:
    """A control-plane namespace for the test; the same cluster is the hosted one, without the Secret yet."""
    name = f"copy-{abs(hash(tmp_path)) % 10**9}"
    plane.kubectl("create", "namespace", name)
    yield TokenCopy("management", name, LABELS)
    plane.kubectl("-n", "kube-system", "delete", "secret", TOKEN_SECRET, "--ignore-not-found")


def make_source(plane: ControlPlane, data: dict[str, str] | None) -> None:
    (secret,) = (item for item in hosted_access(hosted_spec()) if item["kind"] == "Secret")
    plane.apply(secret | ({"data": data} if data else {}))


def copied(
    plane: ControlPlane, copy: TokenCopy, options: ApplyOptions | None = None, clock: ManualClock | None = None
) -> ApplyResult:
    told: list[ApplyResult] = []
    waits: list[str] = []
    time = clock or ManualClock()
    patience = TokenWait(30.0, lambda: waits.append("waits"), time.clock())
    work = copy_token(copy, plane.kubeconfig, plane.kubeconfig, options or ApplyOptions(), told.append, patience)
    step = asyncio.run(asyncio.wait_for(work, 60))
    assert told == [step]
    assert waits == (["waits"] if time.sleeps else [])
    assert not any(value in repr(step) for value in FILLED.values())
    return step


def stored(plane: ControlPlane, copy: TokenCopy) -> dict[str, Any]:
    found = plane.kubectl("-n", copy.namespace, "get", "secret", TOKEN_SECRET, "--ignore-not-found", "-o", "json")
    return dict(json.loads(found)) if found else {}


@real
def test_token_and_ca_are_copied_with_our_labels_and_nothing_else(plane: ControlPlane, copy: TokenCopy) -> None:
    make_source(plane, FILLED | {"namespace": "a3ViZS1zeXN0ZW0="})
    clock = ManualClock()
    assert copied(plane, copy, clock=clock).outcome is ApplyOutcome.CREATED
    assert clock.sleeps == []
    secret = stored(plane, copy)
    assert secret["data"] == FILLED
    assert secret["type"] == "Opaque"
    assert secret["metadata"]["labels"] == LABELS
    assert "annotations" not in secret["metadata"]
    assert copied(plane, copy).outcome is ApplyOutcome.UNCHANGED
    make_source(plane, FILLED | {"token": "bmV3LXRva2Vu"})
    assert copied(plane, copy).outcome is ApplyOutcome.CHANGED
    assert stored(plane, copy)["data"]["token"] == "bmV3LXRva2Vu"


@real
@pytest.mark.parametrize(
    ("data", "why", "remedy"),
    [
        (None, "timed out after 30 s waiting for the hosted cluster to write a token", "kube-controller-manager"),
        ({"token": TOKEN}, "has a token but no ca.crt", "--root-ca-file"),
    ],
)
def test_a_token_that_does_not_come_is_waited_for_and_then_told(
    plane: ControlPlane, copy: TokenCopy, data: dict[str, str] | None, why: str, remedy: str
) -> None:
    make_source(plane, data)
    clock = ManualClock()
    step = copied(plane, copy, clock=clock)
    assert (step.outcome, step.subject) == (ApplyOutcome.NOT_COPIED, copy.subject)
    assert why in step.detail
    assert remedy in step.remedy
    assert sum(clock.sleeps) == 30.0
    assert set(clock.sleeps) == {POLL_SECONDS}
    assert stored(plane, copy) == {}


@real
def test_a_secret_that_is_gone_is_told_as_that(plane: ControlPlane, copy: TokenCopy) -> None:
    step = copied(plane, copy)
    assert step.outcome is ApplyOutcome.NOT_COPIED
    assert "Secret kube-system/konnectivity-proxy-token does not exist" in step.detail
    assert "get serviceaccount konnectivity-proxy" in step.remedy


@real
def test_a_dry_run_looks_at_nothing(plane: ControlPlane, copy: TokenCopy) -> None:
    make_source(plane, FILLED)
    step = copied(plane, copy, ApplyOptions(is_dry_run=True))
    assert step.outcome is ApplyOutcome.UNCHECKED
    assert stored(plane, copy) == {}


@real
def test_who_may_not_read_the_token_is_told_at_once(plane: ControlPlane, copy: TokenCopy) -> None:
    make_source(plane, FILLED)
    clock = ManualClock()
    patience = TokenWait(30.0, clock=clock.clock())
    nobody = plane.make_kubeconfig("copy-nobody")
    work = copy_token(copy, nobody, plane.kubeconfig, ApplyOptions(), lambda _: None, patience)
    step = asyncio.run(asyncio.wait_for(work, 60))
    assert step.outcome is ApplyOutcome.NOT_COPIED
    assert "403" in step.detail
    assert step.remedy
    assert clock.sleeps == []


@real
def test_a_namespace_that_is_not_there_is_a_refusal_without_the_token(plane: ControlPlane, copy: TokenCopy) -> None:
    make_source(plane, FILLED)
    step = copied(plane, TokenCopy("management", "no-such-namespace", LABELS))
    assert step.outcome is ApplyOutcome.REFUSED
    assert "404" in step.detail


@real
def test_a_hosted_api_that_does_not_answer_ends_it(plane: ControlPlane, copy: TokenCopy, tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text(plane.kubeconfig.read_text().replace(plane.url, "https://127.0.0.1:1"))
    work = copy_token(copy, broken, plane.kubeconfig, ApplyOptions(), lambda _: None, TokenWait(30.0))
    with pytest.raises(ClusterError, match="UMB603"):
        asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.real(*PROGRAMS, "kube-controller-manager")
def test_the_token_that_a_real_controller_makes_is_waited_for_and_lets_its_bearer_get_services(
    plane: ControlPlane, copy: TokenCopy, tmp_path: Path
) -> None:
    plane.apply(*hosted_access(hosted_spec()))
    program = peers.binary("kube-controller-manager")
    assert program is not None
    arguments = [
        *("--controllers=serviceaccount-token", "--leader-elect=false", "--secure-port=0"),
        f"--kubeconfig={plane.kubeconfig}",
        f"--root-ca-file={plane.folder / 'ca.crt'}",
        f"--service-account-private-key-file={plane.folder / 'service-accounts.key'}",
    ]
    manager = start([str(program), *arguments], tmp_path / "manager.log", name="kube-controller-manager")
    try:
        work = copy_token(copy, plane.kubeconfig, plane.kubeconfig, ApplyOptions(), lambda _: None, TokenWait(90.0))
        step = asyncio.run(asyncio.wait_for(work, 120))
    finally:
        manager.stop(timeout_seconds=5)
    assert step.outcome is ApplyOutcome.CREATED, step
    assert asyncio.run(asyncio.wait_for(_addresses_by(plane, stored(plane, copy)["data"], tmp_path), 60))


async def _addresses_by(plane: ControlPlane, data: dict[str, str], folder: Path) -> tuple[str, ...] | None:
    """The files of a sidecar after the copy: kubeconfig, token and CA."""
    (config_map,) = management_access(hosted_spec())
    content = yaml.safe_load(config_map["data"][KUBECONFIG_KEY])
    content["clusters"][0]["cluster"] |= {"server": plane.url, "certificate-authority": str(folder / "ca.crt")}
    content["users"][0]["user"] = {"tokenFile": str(folder / "token")}
    for key, value in data.items():
        write_file(folder / key, base64.b64decode(value))
    services = KubernetesServices(write_file(folder / "kubeconfig", json.dumps(content).encode()))
    try:
        return await services.cluster_ips("default", "kubernetes")
    finally:
        await services.close()
