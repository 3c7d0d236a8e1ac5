"""A stand-in for podman and the release payload's images, which bootkube.sh runs on a lab's bootstrap node.

It returns the image of a name, "renders" the control plane (its static pods are already on the node) with the
script's override, checks etcd, and does cluster-bootstrap's work with kubectl. The tunnel's part of the script does
not use it.
"""

import json
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from umbilical.bootstrap.render.kube_apiserver import EGRESS_FLAG
from umbilical.bootstrap.spec import BOOTSTRAP_CONFIGS_IN_POD, BOOTSTRAP_CONFIGS_ON_HOST
from umbilical.lab.bootstrap_config import IMAGES_FILE, PAYLOAD
from umbilical.manifests.control_plane_spec import ETCD_CLIENT_PORT, key_path, public_path

ASSETS: Final = "/assets/"
INSTALL: Final = "/opt/openshift/"
"""Path on the node of the containers' /assets."""
MANIFESTS: Final = "/etc/kubernetes/manifests"
LOOPBACK: Final = "/opt/openshift/auth/kubeconfig-loopback"
INTERNAL: Final = "/opt/openshift/auth/kubeconfig"
CONTROL_PLANE_MARK: Final = "lab-control-plane"
"""ConfigMap in kube-system: a master's control plane is ready. The real program waits for pods."""
READY_SECONDS: Final = 240.0
CREATED_SECONDS: Final = 240.0
# cluster-bootstrap waits 20 minutes for its required pods.
REQUIRED_SECONDS: Final = 1200.0
POLL_SECONDS: Final = 1.0
KUBECTL_SECONDS: Final = 30.0
NOT_KNOWN: Final = 125
"""podman's exit code for an error of podman itself."""


class NotDone(Exception):
    """The request failed or timed out."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _answer(words)
    except (NotDone, OSError) as fault:
        print(f"podman (the lab's stand-in): {fault}", file=sys.stderr)
        return 1


def _answer(words: list[str]) -> int:
    output = _option(words, "--asset-output-dir")
    if words[-2:-1] == ["image"]:
        print(image_of(words[-1]))
    elif output is not None:
        render(output, _option(words, "--config-output-file"), _option(words, "--config-override-files"))
    elif words[-2:] == ["endpoint", "health"]:
        return 0 if is_etcd_healthy() else 1
    elif "start" in words and "--asset-dir=/assets" in words:
        cluster_bootstrap()
    elif "wait-for-ceo" in words:
        # The real program reads the etcd operator's status through the same address.
        _until("the API is reached by its own address", lambda: _is_ready(INTERNAL), READY_SECONDS)
    else:
        print(f"podman (the lab's stand-in): unknown command: {' '.join(words)}", file=sys.stderr)
        return NOT_KNOWN
    return 0


def _option(words: Sequence[str], name: str) -> str | None:
    """Return the path on the node of a container's path."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found[-1].replace(ASSETS, INSTALL, 1) if found else None


def image_of(name: str) -> str:
    images: dict[str, str] = json.loads(Path(IMAGES_FILE).read_text())
    return images.get(name, f"localhost/{name}:lab")


def render(output: str, config: str | None, override: str | None) -> None:
    """Write an operator's files: manifests for the cluster, and its static pod if it has one."""
    folder = Path(output)
    component = folder.name.removesuffix("-bootstrap")
    for name in ("manifests", "bootstrap-manifests"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "manifests" / f"{component}-rendered.yaml").write_text(json.dumps(_note(component)))
    source = Path(PAYLOAD) / f"{component}.yaml"
    if config is not None:
        arguments = _override(override)
        Path(config).write_text(json.dumps({**_CONFIG, "apiServerArguments": arguments}))
        pod = with_arguments(yaml.safe_load(source.read_bytes()), arguments)
        (folder / "bootstrap-manifests" / source.name).write_text(yaml.safe_dump(pod, sort_keys=False))
    elif source.exists():
        shutil.copyfile(source, folder / "bootstrap-manifests" / source.name)


_CONFIG: Final = {"apiVersion": "kubecontrolplane.config.openshift.io/v1", "kind": "KubeAPIServerConfig"}


def _override(path: str | None) -> dict[str, list[str]]:
    if path is None:
        return {}
    document = yaml.safe_load(Path(path).read_bytes())
    if {key: document.get(key) for key in _CONFIG} != _CONFIG:
        raise NotDone(f"{path} is not an override of {_CONFIG['kind']}: the operator would refuse it")
    arguments: dict[str, list[str]] = document.get("apiServerArguments") or {}
    return arguments


def with_arguments(pod: dict[str, Any], arguments: dict[str, list[str]]) -> dict[str, Any]:
    """Add the configuration's directory and its flags to kube-apiserver's pod.

    OpenShift's kube-apiserver reads its flags from that directory; upstream's has them on its command line.
    """
    (container,) = pod["spec"]["containers"]
    words = container["args"] if "args" in container else container["command"]
    words += [f"--{name}={value}" for name, values in arguments.items() for value in values]
    if EGRESS_FLAG in arguments:
        mount = {"name": "config", "mountPath": BOOTSTRAP_CONFIGS_IN_POD, "readOnly": True}
        host = {"path": BOOTSTRAP_CONFIGS_ON_HOST, "type": "Directory"}
        container.setdefault("volumeMounts", []).append(mount)
        pod["spec"].setdefault("volumes", []).append({"name": "config", "hostPath": host})
    return pod


def _note(component: str) -> dict[str, Any]:
    metadata = {"name": f"{component}-rendered", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def is_etcd_healthy() -> bool:
    try:
        context = ssl.create_default_context(cafile=public_path("etcd-ca"))
        context.load_cert_chain(public_path("etcd-client"), key_path("etcd-client"))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(f"https://localhost:{ETCD_CLIENT_PORT}/health", timeout=5) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (OSError, urllib.error.URLError, ValueError):
        return False


def cluster_bootstrap() -> None:
    """Start the control plane, create all manifests, wait for the masters' control plane, and stop this one."""
    pods = _copy_pods()
    _until("the API on this machine is ready", lambda: _is_ready(LOOPBACK), READY_SECONDS)
    _create_all()
    mark = ("--namespace=kube-system", "get", "configmap", CONTROL_PLANE_MARK)
    _until("a master serves the API", lambda: _kubectl(*mark).returncode == 0, REQUIRED_SECONDS)
    for pod in pods:
        print(f"removing {pod}", flush=True)
        pod.unlink(missing_ok=True)
    _until("the API on this machine has ended", lambda: not _is_ready(LOOPBACK), READY_SECONDS)


def _copy_pods() -> list[Path]:
    """Copy static pods into the kubelet's directory. Raises NotDone: a different file of that name exists."""
    copies = []
    for source in sorted(Path(INSTALL, "bootstrap-manifests").iterdir()):
        copy = Path(MANIFESTS, source.name)
        if copy.exists() and copy.read_bytes() != source.read_bytes():
            raise NotDone(f"{copy} exists")
        # The kubelet ignores names with a leading dot, so it never reads half a file.
        scratch = copy.with_name(f".{copy.name}")
        shutil.copyfile(source, scratch)
        scratch.rename(copy)
        copies.append(copy)
    return copies


def _create_all() -> None:
    waiting = sorted(Path(INSTALL, "manifests").iterdir())
    deadline = time.monotonic() + CREATED_SECONDS
    while waiting:
        waiting = list(_not_created(waiting))
        if waiting and time.monotonic() >= deadline:
            raise NotDone(f"not created within {CREATED_SECONDS:g} s: {', '.join(path.name for path in waiting)}")
        time.sleep(POLL_SECONDS if waiting else 0)


def _not_created(paths: Sequence[Path]) -> Iterator[Path]:
    """Try each manifest once. Existing objects are not changed, as in cluster-bootstrap."""
    for path in paths:
        done = _kubectl("create", f"--filename={path}")
        if done.returncode == 0 or "AlreadyExists" in done.stderr:
            print(f"created {path.name}", flush=True)
        else:
            yield path


def _is_ready(kubeconfig: str) -> bool:
    return _kubectl("get", "--raw=/readyz", kubeconfig=kubeconfig).returncode == 0


def _kubectl(*arguments: str, kubeconfig: str = LOOPBACK) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "--request-timeout=10s", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=KUBECTL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", "no answer before the timeout")


def _until(what: str, claim: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() >= deadline:
            raise NotDone(f"timed out after {seconds:g} s; expected: {what}")
        time.sleep(POLL_SECONDS)
    print(f"{what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
