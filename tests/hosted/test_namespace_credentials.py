"""Credentials out of a real control plane's namespace: private files while they are used, and gone afterwards."""

import base64
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_objects import scripted
from tests.support.control_plane import PROGRAMS, ControlPlane
from tests.support.scripted_api import Answer, Request, json_answer, run_async, status_answer

from umbilical.cluster.client import make_client
from umbilical.cluster.errors import ApiRefused
from umbilical.hosted.errors import HostedError
from umbilical.hosted.namespace_credentials import FRONTEND, KUBELET, Purpose, fetch_tls, private_directory
from umbilical.tunnel.settings import TlsFiles

SECRET = {"tls.crt": "a certificate", "tls.key": "a key"}


def encoded(values: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}


def api(secret: dict[str, Any] | None, bundle: dict[str, Any] | None) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        data = secret if "/secrets/" in request.path else bundle
        return status_answer(404, "NotFound") if data is None else json_answer({"data": data})

    return answer


def fetched(answer: Callable[[Request], Answer], folder: Path, purpose: Purpose = FRONTEND) -> TlsFiles:
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_goes_when_the_program_is_asked_to_end(number: signal.Signals) -> None:
    script = (
        "import time; from umbilical.hosted.namespace_credentials import private_directory\n"
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
    assert files.certificate is not None
    assert files.key is not None
    assert files.authority is not None
    assert files.certificate.read_text() == "a certificate"
    assert files.key.read_text() == "a key"
    assert files.authority.read_text() == "a CA"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (files.certificate, files.key, files.authority)} == {0o600}


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


@pytest.mark.parametrize(
    ("secret", "bundle", "word"),
    [
        (None, {"ca.crt": "a CA"}, "no Secret clusters-a/konnectivity-client"),
        (encoded(SECRET), None, "no ConfigMap clusters-a/konnectivity-ca-bundle"),
        (encoded({"tls.crt": "x"}), {"ca.crt": "a CA"}, "it has no tls.key"),
        ({**encoded(SECRET), "tls.key": "***"}, {"ca.crt": "a CA"}, "its tls.key is no base64"),
        (encoded(SECRET), {}, "it has no ca.crt"),
        (encoded(SECRET), {"ca.crt": 7}, "it has no ca.crt"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, secret: dict[str, Any] | None, bundle: dict[str, Any] | None, word: str
) -> None:
    with pytest.raises(HostedError) as fault:
        fetched(api(secret, bundle), tmp_path)
    assert fault.value.code == "UMB570"
    assert word in str(fault.value)
    assert "kubectl -n clusters-a" in fault.value.remedy
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("konnectivity")]


@pytest.mark.real(*PROGRAMS)
def test_they_come_from_a_real_control_plane_and_rights_are_needed(plane: ControlPlane, tmp_path: Path) -> None:
    plane.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "clusters-a"}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "konnectivity-client", "namespace": "clusters-a"},
            "data": encoded(SECRET),
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "konnectivity-ca-bundle", "namespace": "clusters-a"},
            "data": {"ca.crt": "a CA"},
        },
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
