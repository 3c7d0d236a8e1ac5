"""One change anywhere that a rule reads, and any value in an applied object."""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Subject, complaint, copied
from tests.support.hardway_pki import pair, put

from umbilical.checks.check import Outcome
from umbilical.checks.report import group_of
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.certificates import cluster_rows
from umbilical.hardway.config.cluster import ClusterProfile
from umbilical.hardway.lint import handoff_rules, machine_config_rules, manifest_rules, object_rules
from umbilical.hardway.lint.catalogue import RULES, judge
from umbilical.pki.control_plane_set import PkiKind

BY_ID: Final = {rule.id: rule for rule in RULES}
FLAGS: Final = {
    "CVO-01": "release-image",
    "CVO-02": "listen",
    "ETC-02": "etcd-prefix",
    "KN-01": "uds-name egress-selector-config-file",
    "KN-02": "mode",
    "KN-03": "agent-port",
    "PKI-01": "cert-file peer-cert-file",
    "PKI-02": "tls-cert-file tls-sni-cert-key",
    "PKI-03": "trusted-ca-file peer-trusted-ca-file etcd-cafile etcd-certfile client-ca-file"
    " kubelet-certificate-authority requestheader-client-ca-file cluster-signing-cert-file",
    "PKI-05": "requestheader-allowed-names proxy-client-cert-file",
    "PKI-06": "kubelet-client-certificate",
    "PKI-11": "service-account-key-file service-account-signing-key-file service-account-private-key-file",
}
"""Which flags a rule reads, in whatever static pod they stand."""
UNREAD: Final = (
    *("auth/kubeadmin-password", "infrastructure/host-plan.sh", "machine-config/README.md"),
    *("manifests/05-proxy.yaml", "manifests/05-scheduler.yaml", "manifests/06-kubeadmin.yaml"),
    *("manifests/06-pull-secret.yaml", "manifests/06-coredns.yaml"),
    *("static-pods/bootstrap/config/cluster-policy-controller-config.yaml", "static-pods/worker-0/kube-proxy.yaml"),
)
"""Files that no rule of the specification speaks of."""
# A whole MachineConfig: secret for what is encoded in it, which the rule does not look into.
CONTENT: Final = "/etc/mcs-machine-config-content.json"
OBJECT_RULES: Final = tuple(
    rule for module in (handoff_rules, machine_config_rules, manifest_rules, object_rules) for rule in module.RULES
)
ODD: Final[tuple[Any, ...]] = (None, [], {}, "", "x", 1, True, [None], [[]], {"a": None}, -1.5)
FOLDERS: Final = ("manifests/", "machine-config/manifests/", "late-static-pods/", "static-pods/")


@cache
def _small(profile: ClusterProfile) -> Subject:
    return everything(profile, 1, 1)


def _fired(subject: Subject, groups: frozenset[str] = frozenset()) -> list[str]:
    rules = [rule for rule in RULES if not groups or group_of(rule.id) in groups]
    bad = (Outcome.FAILED, Outcome.WARNED)
    return [one.id for one in judge(subject.facts(), rules) if one.outcome in bad]


def _flags(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Yield every flag of a static pod: path, line, name."""
    for path, asset in subject.assets.items():
        if path.startswith((f"{layout.STATIC_PODS}/", f"{layout.LATE_STATIC_PODS}/")):
            for match in re.finditer(r"^ +- --([a-z-]+)=.*\n", asset.content.decode(), re.MULTILINE):
                yield path, match[0], match[1]


@pytest.mark.parametrize(("rule", "flag"), [(rule, flag) for rule, flags in FLAGS.items() for flag in flags.split()])
def test_a_flag_that_a_rule_reads_is_missed_by_that_rule(rule: str, flag: str) -> None:
    tried = 0
    for profile in BY_ID[rule].profiles:
        for path, line, name in _flags(_small(profile)):
            if name == flag:
                subject = copied(_small(profile))
                subject.write(path, subject.assets[path].content.replace(line.encode(), b"", 1))
                assert complaint(rule, subject), (path, line)
                tried += 1
    assert tried


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_a_certificate_of_another_signer_is_noticed_in_any_place(profile: ClusterProfile) -> None:
    signers = {row.id: row.signer for row in cluster_rows(_small(profile).cluster) if row.kind is PkiKind.LEAF}
    for place, signer in signers.items():
        other = next(one for one in signers if signers[one] != signer)
        subject = copied(_small(profile))
        put(subject, place, pair(subject, other))
        assert complaint("PKI-03", subject), f"{other} in the place of {place}"


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_a_key_of_another_is_noticed_in_any_place(profile: ClusterProfile) -> None:
    keys = sorted(
        path for path in _small(profile).assets if path.startswith(f"{layout.TLS}/") and path.endswith(".key")
    )
    for place, other in zip(keys, keys[1:] + keys[:1], strict=True):
        subject = copied(_small(profile))
        subject.write(place, subject.assets[other].content)
        assert complaint("PKI-08", subject), place


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_a_key_that_others_may_read_is_noticed_in_any_place(profile: ClusterProfile) -> None:
    for path in [path for path in _small(profile).assets if path.startswith(f"{layout.TLS}/")]:
        subject = copied(_small(profile))
        subject.write(path, subject.assets[path].content, 0o640)
        assert complaint("PKI-08", subject), path


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_a_secret_that_others_may_read_on_a_node_is_noticed_in_any_place(profile: ClusterProfile) -> None:
    tried = 0
    for node in _small(profile).cluster.nodes:
        for index, file in enumerate(_config(profile, node.id)["storage"]["files"]):
            if file.get("mode") == 0o600 and file["path"] != CONTENT:
                subject = _with_config(profile, node.id, lambda files, at=index: files[at].update(mode=0o644))
                assert complaint("IGN-02", subject), file["path"]
                tried += 1
    assert tried > 10


def _config(profile: ClusterProfile, node_id: str) -> dict[str, Any]:
    value = json.loads(_small(profile).assets[f"{layout.IGNITION}/{node_id}.ign"].content)
    assert isinstance(value, dict)
    return value


def _with_config(profile: ClusterProfile, node_id: str, change: Any) -> Subject:
    subject = copied(_small(profile))
    subject.edit_json(f"{layout.IGNITION}/{node_id}.ign", lambda config: change(config["storage"]["files"]))
    return subject


@settings(max_examples=20)
@given(st.data())
def test_a_file_that_is_gone_is_noticed(data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(ClusterProfile))
    read = sorted(path for path in _small(profile).assets if path not in UNREAD)
    path = data.draw(st.sampled_from(read))
    subject = copied(_small(profile))
    subject.remove(path)
    assert _fired(subject), path


@settings(max_examples=20)
@given(st.data())
def test_a_secret_or_pod_that_a_node_does_not_get_is_noticed(data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(ClusterProfile))
    node = data.draw(st.sampled_from([node.id for node in _small(profile).cluster.nodes]))
    folders = (layout.NODE_SECRETS, layout.MASTER_SECRETS, layout.NODE_MANIFESTS, layout.NODE_LATE_MANIFESTS)
    paths = [file["path"] for file in _config(profile, node)["storage"]["files"]]
    # A pod of a rendered MachineConfig is not ours.
    wanted = [path for path in paths if path.startswith(folders) and "criometricsproxy" not in path]
    assume(wanted)
    path = data.draw(st.sampled_from(wanted))
    subject = _with_config(profile, node, lambda files: files.pop(paths.index(path)))
    assert _fired(subject, frozenset({"IGN"})), path


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_a_server_that_is_not_behind_the_load_balancer_is_noticed(profile: ClusterProfile) -> None:
    for path in ("infrastructure/haproxy.bootstrap.cfg", "infrastructure/haproxy.final.cfg"):
        text = _small(profile).assets[path].content.decode()
        for line in re.findall(r"^ +server .*:(?:6443|22623) .*\n", text, re.MULTILINE):
            subject = copied(_small(profile))
            subject.write(path, text.replace(line, "").encode())
            assert complaint("HA-02", subject), line


@pytest.mark.parametrize("profile", list(ClusterProfile))
def test_a_name_that_is_not_answered_is_noticed(profile: ClusterProfile) -> None:
    for path in ("infrastructure/dns/cluster.zone", "infrastructure/dns/reverse.zone"):
        text = _small(profile).assets[path].content.decode()
        for node in _small(profile).cluster.nodes:
            lines = [line for line in text.splitlines(keepends=True) if f"{node.name}." in line]
            assert lines
            subject = copied(_small(profile))
            subject.write(path, text.replace(lines[0], "").encode())
            assert complaint("CFG-06", subject), lines[0]


@cache
def _places() -> list[tuple[str, int, tuple[Any, ...]]]:
    """Every value of every object: its file, its document, and the way to it."""
    found = []
    for path, asset in sorted(everything(ClusterProfile.OPENSHIFT).assets.items()):
        if path.startswith(FOLDERS) and path.endswith((".yaml", ".yml")):
            for number, document in enumerate(yaml.safe_load_all(asset.content)):
                found += [(path, number, way) for way in _ways(document)]
    return found


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from _ways(one, (*way, key))


def _put(document: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    changed = copy.deepcopy(document)
    inner = changed
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return changed


@settings(max_examples=25)
@given(st.data(), st.sampled_from(ODD))
def test_rules_judge_any_value_without_breaking(data: st.DataObject, odd: Any) -> None:
    path, number, way = data.draw(st.sampled_from(_places()))
    seen = copied(everything(ClusterProfile.OPENSHIFT))
    documents = list(yaml.safe_load_all(seen.assets[path].content))
    documents[number] = _put(documents[number], way, odd)
    seen.write(path, yaml.safe_dump_all(documents).encode())
    facts = seen.facts()
    for rule in OBJECT_RULES:
        assert rule.check.judge(facts).outcome is not None
