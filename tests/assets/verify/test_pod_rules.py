"""C5 to C7: flags, ports and mounts of both pods, and how the agents' objects hang together."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.verify_subjects import NAMES, failures, subject, warnings

from umbilical.assets.spec import Shape
from umbilical.assets.verify.pod_rules import POD_RULES

Change = Callable[[Any], None]


def pod(value: Any) -> Any:
    """The pod's spec, of a Pod or of a DaemonSet."""
    return value["spec"]["template"]["spec"] if value["kind"] == "DaemonSet" else value["spec"]


def container(value: Any) -> Any:
    return pod(value)["containers"][0]


def flag(name: str, new: str | None) -> Change:
    """Set a flag, add it where it is not, or take it out."""

    def change(value: Any) -> None:
        kept = [word for word in container(value)["args"] if not word.startswith(f"{name}=")]
        container(value)["args"] = kept if new is None else [*kept, f"{name}={new}"]

    return change


def again(word: str) -> Change:
    return lambda value: container(value)["args"].append(word)


def update(*keys: str, **changes: Any) -> Change:
    def change(value: Any) -> None:
        for key in keys:
            value = value[key]
        value.update(changes)

    return change


def test_the_checks_are_numbered() -> None:
    assert [check.id for check in POD_RULES] == ["C5", "C6", "C7"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("change", "also"),
    [
        (flag("--server-port", None), set()),
        (flag("--server-port", "8090"), set()),
        (flag("--uds-name", None), {"C3"}),
        (flag("--server-cert", "/x"), set()),
        (flag("--server-key", "/x"), set()),
        (flag("--server-ca-cert", "/x"), set()),
        (flag("--cluster-cert", None), set()),
        (flag("--cluster-key", "/elsewhere/tls.key"), set()),
        (flag("--cluster-ca-cert", ""), set()),
        (flag("--agent-port", "80"), {"C6"}),
        (flag("--agent-port", "6443"), {"C6"}),
        (flag("--agent-port", "50000"), {"C6"}),
        (flag("--agent-port", "x"), {"C6"}),
        (flag("--agent-port", None), {"C6"}),
        (flag("--agent-port", "2041"), {"C6"}),
        (flag("--agent-port", "8095"), {"C6"}),
        (flag("--health-port", "22623"), set()),
        (flag("--health-port", "2042"), set()),
        (flag("--admin-port", "8091"), set()),
        (flag("--admin-port", "2379"), set()),
        (flag("--admin-port", "x"), set()),
        (flag("--proxy-strategies", "nearest"), set()),
        (flag("--proxy-strategies", "destHost,destHost"), set()),
        (flag("--proxy-strategies", ""), set()),
        (again("--mode=grpc"), set()),
        (again("word"), set()),
        (lambda value: pod(value).pop("hostNetwork"), set()),
        (lambda value: pod(value).update(hostNetwork="true"), set()),
        (lambda value: container(value).update(image=""), set()),
        (lambda value: container(value).update(image="a b"), set()),
        (lambda value: container(value).update(image=7), set()),
        (lambda value: container(value).update(command=["/usr/bin/proxy-agent"]), set()),
        (lambda value: container(value)["livenessProbe"]["httpGet"].update(port=2042), set()),
        (lambda value: container(value)["livenessProbe"]["httpGet"].update(path="/readyz"), set()),
        (lambda value: pod(value)["containers"].append({"name": "second"}), set()),
        (lambda value: value.update(kind="Deployment"), set()),
        (lambda value: value.update(apiVersion="v2"), set()),
    ],
)
def test_a_server_that_would_not_start_fails(name: str, change: Change, also: set[str]) -> None:
    found = failures(subject(name).edited("server_pod", change).content)
    # An http-connect server that is told --mode=grpc once more has the wrong protocol besides.
    assert found - {"C1", "C4"} == {"C5", *also}


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_outside_of_where_the_node_makes_them_fails(name: str) -> None:
    def elsewhere(value: Any) -> None:
        for volume in value["spec"]["volumes"]:
            if volume["hostPath"]["path"].startswith("/opt/openshift"):
                volume["hostPath"]["path"] = "/opt/openshift/tls-of-others"

    assert failures(subject(name).edited("server_pod", elsewhere).content) == {"C5"}


@pytest.mark.parametrize("role", ["server_pod", "agent_daemon_set"])
def test_an_image_by_a_tag_warns_and_one_by_a_digest_passes(role: str) -> None:
    check = {"server_pod": "C5", "agent_daemon_set": "C6"}[role]
    tagged = subject("patched").edited(role, lambda value: container(value).update(image="example.io/a/b:v1"))
    assert (failures(tagged.content), warnings(tagged.content)) == (set(), {check})
    digest = f"example.io/a/b@sha256:{'0' * 64}"
    pinned = subject("patched").edited(role, lambda value: container(value).update(image=digest))
    assert (failures(pinned.content), warnings(pinned.content)) == (set(), set())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "change",
    [
        flag("--ca-cert", None),
        flag("--ca-cert", ""),
        flag("--agent-cert", "/elsewhere/tls.crt"),
        flag("--agent-key", "/etc/konnectivity/missing.key"),
        flag("--proxy-server-host", ""),
        flag("--proxy-server-host", None),
        flag("--proxy-server-host", "[fd00::1]"),
        flag("--proxy-server-host", "host.example"),
        flag("--proxy-server-host", "0.0.0.0"),
        flag("--proxy-server-port", "8092"),
        flag("--proxy-server-port", None),
        flag("--agent-identifiers", "ipv4=1.2.3.4"),
        flag("--agent-identifiers", None),
        flag("--health-server-port", "2042"),
        flag("--sync-interval", "60s"),
        flag("--sync-interval", "x"),
        flag("--sync-interval-cap", "1s"),
        flag("--sync-interval-cap", "x"),
        again("--ca-cert=/x"),
        lambda value: container(value).update(command=["/usr/bin/proxy-server"]),
        lambda value: container(value).update(image="!"),
        lambda value: container(value).update(args=[1]),
        lambda value: container(value)["livenessProbe"]["httpGet"].update(port="2041"),
        lambda value: container(value)["volumeMounts"][0].update(mountPath="/elsewhere"),
        lambda value: pod(value)["containers"].append({}),
    ],
)
def test_an_agent_that_would_not_connect_fails(name: str, change: Change) -> None:
    assert failures(subject(name).edited("agent_daemon_set", change).content) - {"C11"} == {"C6"}


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_without_a_key_that_agents_open_fails(name: str) -> None:
    assert failures(subject(name).edited("agent_secret", lambda value: value["data"].pop("ca.crt")).content) == {"C6"}


def test_agents_need_no_default_route_where_the_server_looks_for_none() -> None:
    changed = subject("patched").edited("server_pod", flag("--proxy-strategies", "default"))
    changed = changed.edited("agent_daemon_set", flag("--agent-identifiers", None))
    assert not failures(changed.content)


def test_a_fixed_address_is_as_good_as_a_placeholder() -> None:
    assert not failures(subject("patched").edited("agent_daemon_set", flag("--proxy-server-host", "10.0.0.9")).content)


ROLES = {"agent_daemon_set", "agent_secret", "namespace"}


@pytest.mark.parametrize("name", ["native", "patched", "beside-native"])
@pytest.mark.parametrize(
    ("role", "change"),
    [
        ("agent_daemon_set", update("metadata", namespace="other")),
        ("agent_secret", update("metadata", namespace="other")),
        ("namespace", update("metadata", name="other")),
        ("namespace", update(kind="Project")),
        ("agent_secret", update("metadata", name="other")),
        ("agent_secret", update(kind="ConfigMap")),
        ("agent_daemon_set", update(apiVersion="apps/v1beta1")),
        ("agent_daemon_set", update(kind="DaemonSet", apiVersion="extensions/v1")),
        ("agent_daemon_set", update("spec", "selector", matchLabels={"app": "other"})),
        ("agent_daemon_set", update("spec", "selector", matchLabels={})),
        ("agent_daemon_set", update("spec", "template", "metadata", labels={})),
        ("agent_daemon_set", lambda value: pod(value).pop("tolerations")),
        ("agent_daemon_set", lambda value: pod(value).update(tolerations=[{"key": "x", "operator": "Exists"}])),
        ("agent_daemon_set", lambda value: pod(value)["tolerations"][0].update(effect="NoSchedule")),
        ("agent_daemon_set", lambda value: pod(value).update(hostNetwork=True)),
        ("agent_daemon_set", lambda value: pod(value)["volumes"][0]["secret"].update(secretName="other")),
        ("agent_daemon_set", lambda value: value["metadata"]["labels"].pop("openshift.io/bootstrap-only")),
        ("agent_secret", lambda value: value["metadata"]["labels"].pop("openshift.io/bootstrap-only")),
        ("namespace", lambda value: value["metadata"]["labels"].pop("openshift.io/bootstrap-only")),
        ("namespace", lambda value: value["metadata"]["labels"].update({"openshift.io/bootstrap-only": True})),
    ],
)
def test_objects_that_do_not_belong_together_fail(name: str, role: str, change: Change) -> None:
    assert failures(subject(name).edited(role, change).content) == {"C7"}


@pytest.mark.parametrize(
    ("role", "change"),
    [
        ("agent_daemon_set", update("metadata", namespace="other")),
        ("agent_secret", update("metadata", namespace="other")),
        ("agent_daemon_set", lambda value: pod(value).pop("hostNetwork")),
        ("agent_daemon_set", lambda value: pod(value).update(hostNetwork=False)),
    ],
)
def test_the_seed_shape_is_held_to_its_own_rules(role: str, change: Change) -> None:
    assert failures(subject("seed").edited(role, change).content) - {"X3", "F4"} == {"C7"}


def test_a_namespace_file_does_not_belong_to_the_seed_shape() -> None:
    seed, patched = subject("seed"), subject("patched")

    def add(value: dict[str, Any]) -> None:
        import json

        others = json.loads(patched.content)["storage"]["files"]
        value["storage"]["files"].append(next(file for file in others if file["path"] == patched.path("namespace")))

    assert "C7" in failures(seed.whole(add).content)


@pytest.mark.parametrize(("name", "shape"), [("patched", Shape.SEED), ("seed", Shape.OPENSHIFT)])
def test_another_shape_than_the_one_asked_for_fails(name: str, shape: Shape) -> None:
    assert failures(subject(name).content, shape=shape) == {"C7"}
