"""`umbilical bootstrap teardown` on a real kube-apiserver.

No controller-manager runs: a namespace stays in Terminating until a test finalizes it, as that would.
"""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.support.control_plane import PROGRAMS, ControlPlane, control_plane
from tests.support.tunnel_pair import wait_until

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.render.render import Certificates, render
from umbilical.bootstrap.spec import Shape, TunnelSpec, for_shape
from umbilical.cli.main import run
from umbilical.fault import HostError
from umbilical.pki.authority import Authority
from umbilical.pki.profiles import KeyType, client_profile, server_profile

pytestmark = pytest.mark.real(*PROGRAMS)

OPENSHIFT: Final = for_shape(Shape.OPENSHIFT, image="example.test/tunnel:1")
SEED: Final = for_shape(Shape.SEED, image="example.test/tunnel:1")
NAMESPACE: Final = OPENSHIFT.namespace
FINALIZER: Final = "example.test/hold"
SECONDS: Final = 60.0
AGENTS: Final = f"DaemonSet {NAMESPACE}/konnectivity-agent"
CERTIFICATES: Final = f"Secret {NAMESPACE}/konnectivity-agent-certs"


@pytest.fixture(scope="module")
def plane(namespace: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("teardown-plane")) as plane:
        yield plane


@pytest.fixture
def tunnel(plane: ControlPlane) -> Iterator[ControlPlane]:
    """The objects of the openshift shape, as `render` makes them; nothing is left of them afterwards."""
    plane.apply(*rendered(OPENSHIFT))
    yield plane
    erase(plane)


def rendered(spec: TunnelSpec) -> list[dict[str, Any]]:
    tree = render(spec, OWN, certificates())
    paths = (OWN.namespace, OWN.agent_secret, OWN.agent_daemon_set)
    return [yaml.safe_load(tree[path].content) for path in paths if path in tree]


def certificates() -> Certificates:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = Authority.create("ca", now, day, KeyType.ECDSA_P256)
    server = authority.issue(server_profile("server", ["10.0.0.9"], KeyType.ECDSA_P256), now, day)
    return Certificates(authority.certificate_pem, server, authority.issue(client_profile("agent"), now, day))


def erase(plane: ControlPlane) -> None:
    for kind in ("daemonset", "secret"):
        for namespace in (NAMESPACE, "kube-system"):
            plane.kubectl("-n", namespace, "delete", kind, "--all", "--ignore-not-found")
    if exists(plane, "namespace", NAMESPACE):
        plane.kubectl("patch", "namespace", NAMESPACE, "--type=merge", '-p={"metadata":{"finalizers":null}}')
        plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false", "--ignore-not-found")
    if exists(plane, "namespace", NAMESPACE):
        finalize(plane)


def finalize(plane: ControlPlane, name: str = NAMESPACE) -> None:
    """Do what the namespace controller does at the very end."""
    content = json.loads(plane.kubectl("get", "namespace", name, "-o", "json"))
    content["spec"]["finalizers"] = []
    path = f"/api/v1/namespaces/{name}/finalize"
    plane.kubectl("replace", f"--raw={path}", "-f", "-", stdin=json.dumps(content))


def exists(plane: ControlPlane, kind: str, name: str, namespace: str = "default") -> bool:
    return bool(plane.kubectl("-n", namespace, "get", kind, name, "--ignore-not-found", "-o", "name").strip())


def deletion_asked_for(plane: ControlPlane, name: str = NAMESPACE) -> bool:
    return bool(plane.kubectl("get", "namespace", name, "-o", "jsonpath={.metadata.deletionTimestamp}"))


def finalize_when_asked(plane: ControlPlane) -> threading.Thread:
    """Play the namespace controller beside the command."""

    def play() -> None:
        wait_until(lambda: deletion_asked_for(plane), "somebody deletes the namespace", SECONDS)
        finalize(plane)

    thread = threading.Thread(target=play)
    thread.start()
    return thread


def teardown(plane: ControlPlane, *arguments: str, kubeconfig: Path | None = None) -> int:
    return run(["bootstrap", "teardown", "--kubeconfig", str(kubeconfig or plane.kubeconfig), *arguments])


def states(output: str) -> dict[str, str]:
    return {item["object"]: item["state"] for item in json.loads(output)["objects"]}


def test_the_tunnel_goes_and_a_second_run_has_nothing_to_do(
    tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    controller = finalize_when_asked(tunnel)
    assert teardown(tunnel, "--timeout", "60s", "-o", "json") == 0
    controller.join(SECONDS)
    seen = capfd.readouterr()
    assert states(seen.out) == {AGENTS: "gone", CERTIFICATES: "gone", f"Namespace {NAMESPACE}": "gone"}
    assert list(states(seen.out)) == [AGENTS, CERTIFICATES, f"Namespace {NAMESPACE}"]
    assert not exists(tunnel, "namespace", NAMESPACE)
    assert teardown(tunnel) == 0
    assert "nothing to do" in capfd.readouterr().err


def test_nobody_waits_where_nobody_wants_to(tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]) -> None:
    assert teardown(tunnel, "--no-wait", "-o", "json") == 0
    assert set(states(capfd.readouterr().out).values()) == {"deletion requested"}
    assert deletion_asked_for(tunnel)
    assert not exists(tunnel, "daemonset", "konnectivity-agent", NAMESPACE)


@pytest.mark.parametrize("dry_run", ["client", "server"])
def test_a_dry_run_changes_nothing(dry_run: str, tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]) -> None:
    assert teardown(tunnel, f"--dry-run={dry_run}", "-o", "json") == 0
    assert set(states(capfd.readouterr().out).values()) == {"would be deleted"}
    assert exists(tunnel, "daemonset", "konnectivity-agent", NAMESPACE)
    assert exists(tunnel, "secret", "konnectivity-agent-certs", NAMESPACE)
    assert not deletion_asked_for(tunnel)


def test_a_namespace_without_the_label_stays(tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]) -> None:
    tunnel.kubectl("label", "namespace", NAMESPACE, "openshift.io/bootstrap-only-")
    tunnel.kubectl(
        "-n", NAMESPACE, "label", "secret", "konnectivity-agent-certs", "openshift.io/bootstrap-only=no", "--overwrite"
    )
    assert teardown(tunnel, "--timeout", "20s", "-o", "json") == 0
    assert states(capfd.readouterr().out) == {
        AGENTS: "gone",
        CERTIFICATES: "kept",
        f"Namespace {NAMESPACE}": "kept",
    }
    assert not deletion_asked_for(tunnel)
    assert exists(tunnel, "secret", "konnectivity-agent-certs", NAMESPACE)


def test_a_namespace_that_is_held_is_named_with_its_cause(
    tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    tunnel.kubectl(
        "patch", "namespace", NAMESPACE, "--type=merge", f'-p={{"metadata":{{"finalizers":["{FINALIZER}"]}}}}'
    )
    assert teardown(tunnel, "--no-wait") == 0
    finalize(tunnel)  # now nothing but the foreign finalizer holds it
    condition = {
        "type": "NamespaceDeletionDiscoveryFailure",
        "status": "True",
        "reason": "DiscoveryFailed",
        "message": "stale GroupVersion discovery: metrics.k8s.io/v1beta1",
        "lastTransitionTime": "2026-11-15T12:00:00Z",
    }
    patch = json.dumps({"status": {"conditions": [condition]}})
    tunnel.kubectl("patch", "namespace", NAMESPACE, "--subresource=status", "--type=merge", f"-p={patch}")
    capfd.readouterr()
    assert teardown(tunnel, "--timeout", "3s") == 9
    seen = capfd.readouterr()
    assert FINALIZER in seen.out
    assert "stale GroupVersion discovery: metrics.k8s.io/v1beta1" in seen.out
    assert "waiting until" in seen.err
    assert f"UMB608 timed out after 3 s deleting Namespace {NAMESPACE}" in seen.err


def test_an_object_that_is_held_is_named_with_its_finalizer(
    tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    target = ("-n", NAMESPACE, "patch", "secret", "konnectivity-agent-certs", "--type=merge")
    tunnel.kubectl(*target, f'-p={{"metadata":{{"finalizers":["{FINALIZER}"]}}}}')
    try:
        assert teardown(tunnel, "--timeout", "3s", "-o", "json") == 9
        report = json.loads(capfd.readouterr().out)
        (held,) = [item for item in report["objects"] if item["object"] == CERTIFICATES]
        assert held == {"object": CERTIFICATES, "state": "still there", "detail": f"metadata.finalizers: {FINALIZER}"}
        assert report["timedOut"] is True
    finally:
        tunnel.kubectl(*target, '-p={"metadata":{"finalizers":null}}')


def test_the_seed_shape_goes_by_name_and_leaves_all_else_in_kube_system(
    plane: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    unlabelled = rendered(SEED)
    for item in unlabelled:
        del item["metadata"]["labels"]
    other: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "other", "namespace": "kube-system"},
    }
    plane.apply(*unlabelled, other)
    try:
        assert teardown(plane, "-o", "json") == 0
        assert set(states(capfd.readouterr().out).values()) == {"kept"}
        assert teardown(plane, "--shape", "seed", "--timeout", "30s", "-o", "json") == 0
        assert states(capfd.readouterr().out) == {
            "DaemonSet kube-system/konnectivity-agent": "gone",
            "Secret kube-system/konnectivity-agent-certs": "gone",
        }
        assert exists(plane, "secret", "other", "kube-system")
        assert not deletion_asked_for(plane, "kube-system")
    finally:
        erase(plane)


def test_the_seed_shape_with_its_label_is_found_without_being_named(
    plane: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    plane.apply(*rendered(SEED))
    try:
        assert teardown(plane, "--timeout", "30s", "-o", "json") == 0
        assert set(states(capfd.readouterr().out).values()) == {"gone"}
    finally:
        erase(plane)


def test_a_refused_deletion_is_a_warning_and_the_rest_goes_on(
    tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tunnel.make_kubeconfig("janitor")
    grant(tunnel, "janitor", "get,list", "daemonsets,secrets,namespaces,pods,configmaps")
    grant(tunnel, "janitor-deletes", "delete", "secrets,namespaces", user="janitor")
    assert teardown(tunnel, "--no-wait", "-o", "json", kubeconfig=kubeconfig) == 1
    seen = capfd.readouterr()
    assert states(seen.out) == {
        AGENTS: "refused",
        CERTIFICATES: "deletion requested",
        f"Namespace {NAMESPACE}": "deletion requested",
    }
    assert f"UMB606 {AGENTS} was not deleted" in seen.err
    assert "cannot delete resource" in seen.err
    assert deletion_asked_for(tunnel)


def test_a_server_dry_run_tells_what_would_be_refused(tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tunnel.make_kubeconfig("watcher")
    grant(tunnel, "watcher", "get,list", "daemonsets,secrets,namespaces,pods,configmaps")
    assert teardown(tunnel, "--dry-run=server", "-o", "json", kubeconfig=kubeconfig) == 1
    assert set(states(capfd.readouterr().out).values()) == {"refused"}


def test_an_object_that_may_not_be_seen_is_told_and_the_rest_goes_on(
    tunnel: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tunnel.make_kubeconfig("half-blind")
    grant(tunnel, "half-blind", "get,list,delete", "daemonsets,namespaces,pods,configmaps")
    assert teardown(tunnel, "--no-wait", "-o", "json", kubeconfig=kubeconfig) == 1
    seen = capfd.readouterr()
    assert states(seen.out) == {AGENTS: "deletion requested", f"Namespace {NAMESPACE}": "deletion requested"}
    assert "UMB607" in seen.err


def grant(plane: ControlPlane, name: str, verbs: str, resources: str, user: str | None = None) -> None:
    plane.kubectl("create", "clusterrole", name, f"--verb={verbs}", f"--resource={resources}")
    plane.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={user or name}")
    # The authorizer learns of it by a watch, a moment later.
    last, first = verbs.rpartition(",")[2], resources.partition(",")[0]
    wait_until(lambda: may(plane, user or name, last, first), f"{name} has its rights", SECONDS)


def may(plane: ControlPlane, user: str, verb: str, resource: str) -> bool:
    try:
        return plane.kubectl("auth", "can-i", verb, resource, "-A", f"--as={user}").strip() == "yes"
    except HostError:
        return False


def test_a_kube_apiserver_that_still_uses_the_tunnel_is_told(
    plane: ControlPlane, capfd: pytest.CaptureFixture[str]
) -> None:
    pod: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-apiserver-a", "namespace": "kube-system", "labels": {"component": "kube-apiserver"}},
        "spec": {
            "containers": [
                {
                    "name": "kube-apiserver",
                    "image": "example.test/kube-apiserver:1",
                    "command": ["kube-apiserver", "--egress-selector-config-file=/etc/kubernetes/egress.yaml"],
                }
            ]
        },
    }
    plane.apply(pod)
    try:
        assert teardown(plane) == 0
        seen = capfd.readouterr()
        assert "UMB609 a kube-apiserver still uses an egress selector" in seen.err
        assert "Pod kube-system/kube-apiserver-a" in seen.err
    finally:
        plane.kubectl("-n", "kube-system", "delete", "pod", "kube-apiserver-a", "--force", "--grace-period=0")


def test_an_api_that_does_not_answer_is_the_world_outside(
    plane: ControlPlane, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = json.loads(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "wrong.kubeconfig"
    path.write_text(json.dumps(config))
    assert teardown(plane, kubeconfig=path) == 4
    assert "UMB603" in capfd.readouterr().err
