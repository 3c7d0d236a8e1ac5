"""The example is a spec as any other, and explains every key."""

import re

import pytest

from umbilical.assets.errors import AssetError
from umbilical.assets.hosted.spec_example import EXAMPLE
from umbilical.assets.hosted.spec_reading import read_spec
from umbilical.assets.tree import yaml_bytes

PEM = "aggregatedAuthority: |\n  -----BEGIN CERTIFICATE-----\n  MA==\n  -----END CERTIFICATE-----"


def test_the_example_can_be_used() -> None:
    spec = read_spec(EXAMPLE.encode())
    assert (spec.name, spec.replicas, spec.publishing.port) == ("guest", 3, 443)


def test_what_is_commented_out_can_be_used_as_well() -> None:
    text = re.sub(r"^# aggregatedAuthority(.*\n)*?#   \.\.\.$", PEM, EXAMPLE, flags=re.MULTILINE)
    text = re.sub(r"^#(    groups:|      - group|        (version|group))", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^( *)# ((leases|proxy|managementProxy|manifest|agent):.*)$", r"\1\2", text, flags=re.MULTILINE)
    text = re.sub(r"^#   ((kubeconfigSecret|user|http|https|noProxy|trustedCa): )", r"  \1", text, flags=re.MULTILINE)
    spec = read_spec(text.encode())
    assert spec.aggregated_apis[0].groups[0].name == "v1.apps.openshift.io"
    assert spec.leases.kubeconfig_secret
    assert (spec.proxy.is_set, spec.proxy.trusted_ca, spec.proxy.no_proxy) == (
        True,
        "user-ca-bundle",
        (".example.com",),
    )
    assert (spec.management_proxy.is_set, spec.management_proxy.no_proxy) == (True, (".mgmt.example.com",))
    assert spec.kube_apiserver.manifest == "kube-apiserver.yaml"


def test_every_key_that_can_be_given_is_in_the_example() -> None:
    unknown = {"zz": 1}
    sections = ("images", "publish", "networks", "leases", "agents", "kubeApiserver", "pki", "proxy", "monitoring")
    apis = {"managementProxy": unknown, "aggregatedApis": [{**unknown, "groups": [unknown]}]}
    with pytest.raises(AssetError) as refused:
        read_spec(yaml_bytes({**unknown, **dict.fromkeys(sections, unknown), **apis}))
    offered = [names for reason in refused.value.why.split("; ") if (names := reason.partition("there are: ")[2])]
    assert len(offered) == 13
    for key in {key for names in offered for key in names.split(", ")}:
        assert re.search(rf"^[#\s-]*{key}:", EXAMPLE, re.MULTILINE), f"{key} is not explained"
