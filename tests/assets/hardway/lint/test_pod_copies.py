"""Static pods on nodes are those that were rendered."""

import pytest
from tests.support.hardway_everything import everything
from tests.support.hardway_lint import Subject, copied

from umbilical.assets.hardway import layout
from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.pod_copies import copy_faults


def _faults(subject: Subject) -> list[str]:
    facts = subject.facts()
    return [fault for node in subject.cluster.nodes for fault in copy_faults(facts, node)]


@pytest.mark.parametrize("profile", list(Profile))
def test_everything_is_carried_as_it_was_rendered(profile: Profile) -> None:
    assert _faults(everything(profile)) == []


@pytest.mark.parametrize("profile", list(Profile))
def test_each_pod_that_changed_on_either_side_is_named(profile: Profile) -> None:
    paths = [path for path in everything(profile).assets if path.startswith(("static-pods/", "late-static-pods/"))]
    nodes = {node.id for node in everything(profile).cluster.nodes}
    for path in (one for one in paths if one.split("/")[1] in nodes):
        subject = copied(everything(profile))
        subject.write(path, subject.assets[path].content + b"# changed\n")
        (fault,) = _faults(subject)
        assert fault.startswith(f"{path} is not written")


def test_a_pod_in_another_directory_is_not_run() -> None:
    subject = copied(everything(Profile.KUBERNETES))
    subject.replace("ignition/worker-0.ign", f"{layout.NODE_MANIFESTS}/kube-proxy.yaml", "/etc/x/kube-proxy.yaml")
    (fault,) = _faults(subject)
    assert fault == (
        "static-pods/worker-0/kube-proxy.yaml is not written to /etc/kubernetes/manifests/kube-proxy.yaml as it is"
    )


def test_a_pod_that_nobody_has_rendered_is_named() -> None:
    subject = copied(everything(Profile.OPENSHIFT))
    subject.remove("static-pods/bootstrap/etcd-bootstrap.yaml")
    (fault,) = _faults(subject)
    assert fault.endswith("etcd-bootstrap.yaml is missing")
