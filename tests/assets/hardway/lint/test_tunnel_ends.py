"""Both ends of the tunnel: what is followed from one to the other."""

import pytest
from tests.support.hardway_lint import copied
from tests.support.hardway_pki import rendered

from umbilical.assets.hardway.cluster import Profile
from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.tunnel_ends import lifetime_faults, protocol_faults, socket_faults
from umbilical.assets.names import BOOTKUBE

API = "static-pods/bootstrap/kube-apiserver-bootstrap.yaml"


def test_the_egress_selector_is_read_where_the_flag_leads_to() -> None:
    subject = copied(rendered(Profile.OPENSHIFT))
    subject.replace(API, "egress-selector-config.yaml", "cluster-policy-controller-config.yaml")
    assert "it selects nothing" in "".join(protocol_faults(subject.facts()))


def test_a_flag_that_leads_out_of_the_configs_is_told() -> None:
    subject = copied(rendered(Profile.KUBERNETES))
    subject.replace(API, "/etc/kubernetes/config/egress-selector-config.yaml", "/etc/kubernetes/secrets/egress.yaml")
    with pytest.raises(Unreadable, match="configs lie in"):
        list(socket_faults(subject.facts()))


def test_a_script_that_makes_no_certificates_is_told() -> None:
    subject = copied(rendered(Profile.KUBERNETES))
    subject.edit_ignition("bootstrap", BOOTKUBE, lambda _: b"#!/bin/bash\n")
    with pytest.raises(Unreadable, match="does not say how long"):
        list(lifetime_faults(subject.facts()))
