"""C1 to C7, X1 to X4: the manifests of both ends, how they hang together, and what agents may ask for."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.bootstrap_corpus import bootstrap_config
from tests.support.inline_tunnel import inline_config
from tests.support.verify_subjects import NAMES, Subject, container, failures, findings, pod, subject, warnings

from umbilical.bootstrap.names import OWN
from umbilical.bootstrap.patch.config_facts import TunnelState
from umbilical.bootstrap.spec import Mode, Shape
from umbilical.checks.check import Outcome
from umbilical.manifests.tree import yaml_bytes

C = tuple(f"C{number}" for number in range(1, 8))
NAMESPACE = "openshift-bootstrap-konnectivity"
ACCOUNT = {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}
GROUP = {"kind": "Group", "name": f"system:serviceaccounts:{NAMESPACE}"}
CONTENTS = {
    TunnelState.NONE: bootstrap_config("4.18"),
    TunnelState.NATIVE_OFF: bootstrap_config("5.1", native="off"),
    TunnelState.NATIVE_ON: subject("native").content,
    TunnelState.PATCHED: subject("patched").content,
    TunnelState.INLINE: inline_config(),
}
Change = Callable[[Any], None]


def failing(role: str, change: Change, *checks: str, name: str = "patched") -> set[str]:
    """Give those of these checks that fail once a manifest is changed."""
    return failures(subject(name).edited(role, change).content, *checks)


def selection(value: Any, name: str) -> Any:
    return next(found for found in value["egressSelections"] if found["name"] == name)


def cluster(value: Any) -> Any:
    return selection(value, "cluster")["connection"]


def arguments(value: Any) -> Any:
    return value["apiServerArguments"]


def egress_files(*paths: str) -> Change:
    return lambda value: arguments(value).update({"egress-selector-config-file": [*paths]})


def uds(path: str) -> Change:
    return lambda value: cluster(value)["transport"]["uds"].update(udsName=path)


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


def image_of(image: object) -> Change:
    return lambda value: container(value).update(image=image)


def probe(**changes: Any) -> Change:
    return lambda value: container(value)["livenessProbe"]["httpGet"].update(changes)


def socket_mount(value: Any) -> Any:
    return next(mount for mount in container(value)["volumeMounts"] if mount["mountPath"].startswith("/etc/kubernetes"))


def socket_volume(value: Any) -> Any:
    return next(volume for volume in value["spec"]["volumes"] if volume["name"] == socket_mount(value)["name"])


@pytest.mark.parametrize(
    ("change", "also"),
    [
        (update(apiVersion="apiserver.k8s.io/v1"), set()),
        (update(kind="KubeAPIServerConfig"), set()),
        (lambda value: value.pop("kind"), set()),
        (update(extra=1), set()),
        (lambda value: value["egressSelections"].pop(), set()),
        (lambda value: value["egressSelections"].append({"name": "master", "connection": {}}), set()),
        (lambda value: value["egressSelections"].append(selection(value, "etcd")), set()),
        (lambda value: value["egressSelections"].append("x"), set()),
        (update(egressSelections="x"), {"C3", "C4"}),
        (lambda value: selection(value, "cluster").update(name="Cluster"), {"C3", "C4"}),
        (lambda value: selection(value, "etcd").update(note="x"), set()),
        (lambda value: selection(value, "etcd").update(connection=None), set()),
        (lambda value: selection(value, "etcd")["connection"].update(proxyProtocol="GRPC"), set()),
        (lambda value: selection(value, "etcd")["connection"].update(transport={}), set()),
        (lambda value: selection(value, "controlplane")["connection"].update(proxyProtocol="direct"), set()),
        (lambda value: cluster(value).update(proxyProtocol="Direct"), {"C4"}),
        (lambda value: cluster(value).update(extra="x"), set()),
        (lambda value: cluster(value)["transport"].update(tcp={"url": "https://x"}), set()),
        (uds("relative"), {"C3"}),
        (lambda value: cluster(value)["transport"]["uds"].update(extra=1), set()),
        (lambda value: cluster(value).pop("transport"), {"C3"}),
    ],
)
def test_an_egress_selector_that_kube_apiserver_would_refuse_fails(change: Change, also: set[str]) -> None:
    assert failing("egress", change, "C1", "C3", "C4") == {"C1", *also}


@pytest.mark.parametrize(
    "change",
    [
        update(apiVersion="v1"),
        lambda value: value.pop("apiVersion"),
        update(egressSelectorConfiguration={}),
        update("apiServerArguments", **{"audit-log-path": ["-"]}),
        lambda value: value.pop("apiServerArguments"),
        update("apiServerArguments", **{"egress-selector-config-file": "/etc/kubernetes/config/e.yaml"}),
        lambda value: arguments(value)["egress-selector-config-file"].append("/x"),
        egress_files("/etc/kubernetes/bootstrap-configs/egress-selector-config.yaml"),
        egress_files("/etc/kubernetes/config/other.yaml"),
    ],
)
def test_an_override_that_does_not_reach_kube_apiserver_fails(change: Change) -> None:
    assert failing("override", change, "C2") == {"C2"}


def test_an_override_without_a_kind_is_allowed_and_one_that_go_templates_would_run_is_not() -> None:
    def bare(value: Any) -> None:
        del value["apiVersion"], value["kind"]

    assert not failing("override", bare)
    patched = subject("patched")
    assert failures(patched.with_text("override", patched.text("override") + "# {{ .X }}\n").content) == {"C2"}


def test_a_socket_that_is_not_the_servers_fails() -> None:
    for path in (
        "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket",
        "/etc/kubernetes/config/other.socket",
        "/etc/kubernetes/config/below/konnectivity-server.socket",
        "/etc/kubernetes/config/../config/konnectivity-server.socket",
    ):
        assert failing("egress", uds(path), *C) == {"C3"}, path


@pytest.mark.parametrize(
    "change",
    [
        flag("--uds-name", "/etc/kubernetes/config/konnectivity-server.socket"),
        flag("--uds-name", "/etc/kubernetes/bootstrap-configs/other.socket"),
        flag("--uds-name", "/etc/kubernetes/bootstrap-configs/../x.socket"),
        lambda value: socket_mount(value).update(readOnly=True),
        lambda value: socket_mount(value).update(mountPath="/elsewhere"),
        lambda value: socket_mount(value).update(name="nothing"),
        lambda value: socket_volume(value)["hostPath"].update(path="/etc/kubernetes/config"),
        lambda value: socket_volume(value)["hostPath"].update(type="File"),
        lambda value: socket_volume(value).update(hostPath=None, emptyDir={}),
    ],
)
def test_a_server_that_listens_elsewhere_fails(change: Change) -> None:
    assert failing("server_pod", change, "C3", "C5") == {"C3"}


def test_the_protocol_is_the_one_of_the_mode_at_both_ends() -> None:
    for name, mine, others in (
        ("native", "grpc", "http-connect"),
        ("patched", "grpc", "http-connect"),
        ("seed", "http-connect", "grpc"),
    ):
        protocol = {"grpc": "GRPC", "http-connect": "HTTPConnect"}[mine]
        assert cluster(subject(name).value("egress"))["proxyProtocol"] == protocol
        assert failures(subject(name).content, *C, mode=Mode(others)) == {"C1", "C4"}
        assert failing("server_pod", flag("--mode", others), *C, name=name) == {"C1", "C4"}
    assert failing("server_pod", flag("--mode", "quic"), *C) == {"C4"}


@pytest.mark.parametrize(
    ("change", "also"),
    [
        *((flag("--server-port", port), set()) for port in (None, "8090")),
        (flag("--uds-name", None), {"C3"}),
        *((flag(f"--server-{file}", "/x"), set()) for file in ("cert", "key", "ca-cert")),
        (flag("--cluster-cert", None), set()),
        (flag("--cluster-key", "/elsewhere/tls.key"), set()),
        (flag("--cluster-ca-cert", ""), set()),
        *((flag("--agent-port", port), {"C6"}) for port in ("80", "6443", "50000", "x", None, "2041", "8095")),
        *((flag("--health-port", port), set()) for port in ("22623", "2042")),
        *((flag("--admin-port", port), set()) for port in ("8091", "2379", "x")),
        *((flag("--proxy-strategies", strategies), set()) for strategies in ("nearest", "destHost,destHost", "")),
        (again("--mode=grpc"), set()),
        (again("word"), set()),
        (lambda value: pod(value).pop("hostNetwork"), set()),
        (lambda value: pod(value).update(hostNetwork="true"), set()),
        *((image_of(image), set()) for image in ("", "a b", 7)),
        (lambda value: container(value).update(command=["/usr/bin/proxy-agent"]), set()),
        (probe(port=2042), set()),
        (probe(path="/readyz"), set()),
        (lambda value: pod(value)["containers"].append({"name": "second"}), set()),
        (update(kind="Deployment"), set()),
        (update(apiVersion="v2"), set()),
    ],
)
def test_a_server_that_would_not_start_fails(change: Change, also: set[str]) -> None:
    assert failing("server_pod", change, "C3", "C5", "C6") == {"C5", *also}


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_outside_of_where_the_node_makes_them_fails(name: str) -> None:
    def elsewhere(value: Any) -> None:
        for volume in value["spec"]["volumes"]:
            if volume["hostPath"]["path"].startswith("/opt/openshift"):
                volume["hostPath"]["path"] = "/opt/openshift/tls-of-others"

    assert failing("server_pod", elsewhere, *C, name=name) == {"C5"}


def test_an_image_by_a_tag_warns_and_one_by_a_digest_passes() -> None:
    for role, check in (("server_pod", "C5"), ("agent_daemon_set", "C6")):
        for image, warned in (("example.io/a/b:v1", {check}), (f"example.io/a/b@sha256:{'0' * 64}", set[str]())):
            content = subject("patched").edited(role, image_of(image)).content
            assert (failures(content), warnings(content)) == (set(), warned)


@pytest.mark.parametrize(
    "change",
    [
        *(flag("--ca-cert", path) for path in (None, "")),
        flag("--agent-cert", "/elsewhere/tls.crt"),
        flag("--agent-key", "/etc/konnectivity/missing.key"),
        *(flag("--proxy-server-host", host) for host in ("", None, "[fd00::1]", "host.example", "0.0.0.0")),
        *(flag("--proxy-server-port", port) for port in ("8092", None)),
        *(flag("--agent-identifiers", identifiers) for identifiers in ("ipv4=1.2.3.4", None)),
        flag("--health-server-port", "2042"),
        *(flag("--sync-interval", interval) for interval in ("60s", "x")),
        *(flag("--sync-interval-cap", cap) for cap in ("1s", "x")),
        again("--ca-cert=/x"),
        lambda value: container(value).update(command=["/usr/bin/proxy-server"]),
        image_of("!"),
        lambda value: container(value).update(args=[1]),
        probe(port="2041"),
        lambda value: container(value)["volumeMounts"][0].update(mountPath="/elsewhere"),
        lambda value: pod(value)["containers"].append({}),
    ],
)
def test_an_agent_that_would_not_connect_fails(change: Change) -> None:
    assert failing("agent_daemon_set", change, "C5", "C6", "C7") == {"C6"}


@pytest.mark.parametrize("name", NAMES)
def test_the_manifests_of_every_tunnel_are_judged(name: str) -> None:
    assert failing("egress", lambda value: value["egressSelections"].pop(), *C, name=name) == {"C1"}
    assert failing("override", egress_files("/etc/kubernetes/config/other.yaml"), *C, name=name) == {"C2"}
    assert failing("egress", uds("/etc/kubernetes/config/other.socket"), *C, name=name) == {"C3"}
    assert failing("server_pod", lambda value: socket_mount(value).update(readOnly=True), *C, name=name) == {"C3"}
    assert failing("server_pod", flag("--cluster-cert", None), *C, name=name) == {"C5"}
    assert failing("agent_daemon_set", flag("--ca-cert", None), *C, name=name) == {"C6"}
    assert failing("agent_secret", lambda value: value["data"].pop("ca.crt"), *C, name=name) == {"C6"}
    assert failing("agent_daemon_set", lambda value: pod(value).pop("tolerations"), *C, name=name) == {"C7"}


def test_agents_need_no_default_route_that_nobody_looks_for_and_may_dial_a_fixed_address() -> None:
    changed = subject("patched").edited("server_pod", flag("--proxy-strategies", "default"))
    assert not failures(changed.edited("agent_daemon_set", flag("--agent-identifiers", None)).content)
    assert not failing("agent_daemon_set", flag("--proxy-server-host", "10.0.0.9"))


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
def test_objects_that_do_not_belong_together_fail(role: str, change: Change) -> None:
    assert failing(role, change, "C6", "C7", name="patched") == {"C7"}


def test_the_seed_shape_is_held_to_its_own_rules() -> None:
    for role in ("agent_daemon_set", "agent_secret"):
        assert failing(role, update("metadata", namespace="other"), *C, name="seed") == {"C7"}
    for change in (update("spec", "template", "spec", hostNetwork=False), lambda value: pod(value).pop("hostNetwork")):
        assert failing("agent_daemon_set", change, *C, name="seed") == {"C7"}
    patched = subject("patched")
    files = json.loads(patched.content)["storage"]["files"]
    file = next(file for file in files if file["path"] == patched.path("namespace"))
    assert failures(subject("seed").whole(lambda value: value["storage"]["files"].append(file)).content, "C7")


def test_another_shape_than_the_one_asked_for_fails() -> None:
    for name, shape in (("patched", Shape.SEED), ("seed", Shape.OPENSHIFT)):
        assert failures(subject(name).content, shape=shape) == {"C7"}


def with_binding(folder: str = "openshift", **changes: Any) -> bytes:
    """Agents on the host's network, and an SCC binding for their account."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "x", "namespace": NAMESPACE},
        "roleRef": {"kind": "ClusterRole", "name": "system:openshift:scc:hostnetwork-v2"},
        "subjects": [ACCOUNT],
        **changes,
    }
    source = "data:;base64," + base64.b64encode(yaml_bytes(binding)).decode()
    path = f"/opt/openshift/{folder}/99_binding.yaml"
    file = {"path": path, "mode": 420, "overwrite": True, "contents": {"source": source}}
    changed = subject("patched").edited("agent_daemon_set", lambda value: pod(value).update(hostNetwork=True))
    return changed.whole(lambda value: value["storage"]["files"].append(file)).content


def test_a_binding_of_the_agents_account_makes_host_network_right_and_no_other_does() -> None:
    right: list[dict[str, Any]] = [
        {},
        {"folder": "manifests"},
        {"subjects": [GROUP]},
        {"kind": "ClusterRoleBinding", "metadata": {"name": "x"}},
        {"roleRef": {"name": "system:openshift:scc:privileged"}},
    ]
    wrong: list[dict[str, Any]] = [
        {"subjects": []},
        {"subjects": [{**ACCOUNT, "name": "other"}]},
        {"subjects": [{**ACCOUNT, "namespace": "other"}]},
        {"metadata": {"name": "x", "namespace": "other"}},
        {"roleRef": {"name": "system:openshift:scc:restricted-v2"}},
        {"kind": "ConfigMap"},
        {"folder": "elsewhere"},
    ]
    assert not failures(with_binding())
    assert [changes for changes in right if failures(with_binding(**changes), *C, "X3")] == []
    assert [changes for changes in wrong if failures(with_binding(**changes), *C, "X3") != {"C7"}] == []


def test_another_profile_than_the_one_asked_for_fails_and_without_one_it_is_only_told() -> None:
    for found in TunnelState:
        for expected in TunnelState:
            wrong = set() if found is expected else {"X1"}
            assert failures(CONTENTS[found], "X1", "X2", expected_state=expected) == wrong, (found, expected)
    finding = findings(CONTENTS[TunnelState.NATIVE_OFF], "X1")["X1"]
    assert finding.outcome is Outcome.SKIPPED
    assert "native-off" in finding.evidence


def test_a_file_or_a_call_of_ours_in_an_unpatched_config_fails() -> None:
    file = {"path": OWN.egress, "mode": 384, "overwrite": True, "contents": {"source": "data:,x"}}
    plain = Subject(CONTENTS[TunnelState.NONE])
    assert failures(plain.whole(lambda value: value["storage"]["files"].append(file)).content) == {"X2"}
    for call in (OWN.setup_function, OWN.cleanup_function, f"source {OWN.library}"):
        plain = Subject(CONTENTS[TunnelState.NONE])
        text = plain.text("bootkube")
        assert failures(plain.with_text("bootkube", f"{text}{call}\n").content) == {"X2"}
        assert not failures(plain.with_text("bootkube", f"{text}# {call}\n").content)


def privilege(**changes: Any) -> Change:
    return lambda value: container(value).setdefault("securityContext", {}).update(changes)


@pytest.mark.parametrize("name", ["patched", "native"])
@pytest.mark.parametrize(
    "change",
    [
        lambda value: pod(value).update(hostPID=True),
        lambda value: pod(value).update(hostIPC=True),
        lambda value: pod(value)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        privilege(privileged=True),
        privilege(allowPrivilegeEscalation=True),
        privilege(runAsUser=0),
        privilege(capabilities={"add": ["NET_ADMIN"]}),
    ],
)
def test_agents_that_ask_for_privileges_fail(name: str, change: Change) -> None:
    assert failing("agent_daemon_set", change, "C6", "C7", "X3", name=name) == {"X3"}


@pytest.mark.parametrize("name", ["patched", "seed"])
@pytest.mark.parametrize(
    "change",
    [
        lambda value: pod(value)["securityContext"].pop("runAsNonRoot"),
        lambda value: pod(value)["securityContext"].pop("seccompProfile"),
        lambda value: container(value)["securityContext"].pop("allowPrivilegeEscalation"),
        privilege(capabilities={"drop": []}),
        lambda value: container(value).pop("securityContext"),
    ],
)
def test_our_agents_must_say_that_they_are_restricted(name: str, change: Change) -> None:
    assert failing("agent_daemon_set", change, "X3", name=name) == {"X3"}


@pytest.mark.parametrize("field", ["runAsUser", "runAsGroup", "fsGroup"])
def test_agents_that_choose_their_user_where_an_scc_does_fail(field: str) -> None:
    assert failing("agent_daemon_set", lambda value: pod(value)["securityContext"].update({field: 7})) == {"X3"}


def test_a_program_that_rhcos_lacks_fails_and_one_that_nobody_knows_warns() -> None:
    patched = subject("patched")
    text = patched.text("certificate_script")
    for program in ("python3 -c x", "perl", "/usr/bin/yq .", "timeout 5 kubectl get", "x=$(dig a)"):
        assert failures(patched.with_text("certificate_script", f"{text}{program}\n").content, "C9", "X4") == {"X4"}
        assert not failures(patched.with_text("certificate_script", f"{text}# {program}\n").content, "C9", "X4")
    changed = patched.with_text("library", patched.text("library") + "frobnicate\n").content
    assert (failures(changed), warnings(changed)) == (set(), {"X4"})
