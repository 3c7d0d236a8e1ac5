"""Stands in for podman and the release payload's images on a lab's bootstrap node, where bootkube.sh asks them.

It answers which image bears a name, "renders" the control plane (whose static pods lie on the node already) with the
override that the script names, looks at etcd, and does cluster-bootstrap's work with kubectl. Everything that the
tunnel's own part of the script does is real and none of this.
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
"""What the containers see as /assets."""
MANIFESTS: Final = "/etc/kubernetes/manifests"
LOOPBACK: Final = "/opt/openshift/auth/kubeconfig-loopback"
INTERNAL: Final = "/opt/openshift/auth/kubeconfig"
CONTROL_PLANE_MARK: Final = "lab-control-plane"
"""ConfigMap in kube-system: a master's own control plane serves. The real one waits for pods of that name."""
READY_SECONDS: Final = 240.0
CREATED_SECONDS: Final = 240.0
# cluster-bootstrap itself gives its required pods twenty minutes.
REQUIRED_SECONDS: Final = 1200.0
POLL_SECONDS: Final = 1.0
KUBECTL_SECONDS: Final = 30.0
NOT_KNOWN: Final = 125
"""podman's own exit code for "podman itself cannot"."""


class NotDone(Exception):
    """What was asked for did not come about in time, or cannot."""


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
        # The real one asks the etcd operator's status, and that through the same door.
        _until("the API is reached by its own address", lambda: _is_ready(INTERNAL), READY_SECONDS)
    else:
        print(f"podman (the lab's stand-in): nobody here knows {' '.join(words)}", file=sys.stderr)
        return NOT_KNOWN
    return 0


def _option(words: Sequence[str], name: str) -> str | None:
    """Return a path that a container was given, as the node knows it."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return found[-1].replace(ASSETS, INSTALL, 1) if found else None


def image_of(name: str) -> str:
    images: dict[str, str] = json.loads(Path(IMAGES_FILE).read_text())
    return images.get(name, f"localhost/{name}:lab")


def render(output: str, config: str | None, override: str | None) -> None:
    """Write what an operator's image would: manifests for the cluster, and a static pod if it has one."""
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
        raise NotDone(f"{path} is no override of {_CONFIG['kind']}: the operator would refuse it")
    arguments: dict[str, list[str]] = document.get("apiServerArguments") or {}
    return arguments


def with_arguments(pod: dict[str, Any], arguments: dict[str, list[str]]) -> dict[str, Any]:
    """Give kube-apiserver the configuration's directory as its pod on a real node has it, and the flags in it.

    The real one reads its flags from that directory; upstream's has them on its command line.
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
    """Start the control plane, create every manifest, wait for the masters' own, and take this one away."""
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
    """Copy static pods into the kubelet's directory; one of the same name that differs is somebody else's."""
    copies = []
    for source in sorted(Path(INSTALL, "bootstrap-manifests").iterdir()):
        copy = Path(MANIFESTS, source.name)
        if copy.exists() and copy.read_bytes() != source.read_bytes():
            raise NotDone(f"{copy} exists")
        # A dot in front hides it from the kubelet while half of it is there.
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
            raise NotDone(f"not created in {CREATED_SECONDS:g} s: {', '.join(path.name for path in waiting)}")
        time.sleep(POLL_SECONDS if waiting else 0)


def _not_created(paths: Sequence[Path]) -> Iterator[Path]:
    """Try each once. What exists is not changed: cluster-bootstrap never does."""
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
        return subprocess.CompletedProcess(command, 1, "", "no answer in time")


def _until(what: str, claim: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() >= deadline:
            raise NotDone(f"not in {seconds:g} s: {what}")
        time.sleep(POLL_SECONDS)
    print(f"{what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
