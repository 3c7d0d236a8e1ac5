"""Whole clusters of the hard way, every artifact of them, rendered once per shape and handed out as subjects."""

from datetime import datetime
from functools import cache

from tests.support import hardway
from tests.support.hardway_lint import Subject, subject
from tests.support.hardway_nodes import machine_config_base
from tests.support.release_directory import release_payload

from umbilical.hardway.artifacts.graph import render
from umbilical.hardway.artifacts.inputs import Inputs
from umbilical.hardway.config.cluster import Cluster, ClusterProfile, MachinesKind, NodeRole, Switch


def inputs(of: Cluster, now: datetime = hardway.NOW, *, is_based: bool = True) -> Inputs:
    """`is_based`: OpenShift's members on rendered MachineConfigs, not on the built-in base."""
    payload = release_payload() if of.is_openshift else hardway.payload(of.profile)
    roles = (NodeRole.MASTER, NodeRole.WORKER) if of.is_openshift and is_based else ()
    bases = {role: machine_config_base(role) for role in roles}
    return Inputs(of, hardway.certificates(of, now), payload, hardway.identity(), hardway.PULL_SECRET, bases)


def rendered(given: Inputs) -> Subject:
    return subject(given.cluster, render(given).tree, has_tunnel=given.has_tunnel)


@cache
def everything(profile: ClusterProfile, masters: int = 3, workers: int = 2) -> Subject:
    """All that can be switched on is: tunnel, kube-proxy, virtual machines. Take a copy before a change."""
    of = hardway.cluster(
        profile, masters, workers, kube_proxy=Switch.ON, konnectivity=Switch.ON, machines=MachinesKind.LIBVIRT
    )
    return rendered(inputs(of))


@cache
def usual(profile: ClusterProfile, masters: int = 3, workers: int = 2) -> Subject:
    """As the config's defaults have it."""
    return rendered(inputs(hardway.cluster(profile, masters, workers)))
