"""Cluster manifests as an installer's `create manifests` leaves them: Go's YAML, keys sorted, lists not set in."""

from typing import Any, Final

import yaml

INFRA_ID: Final = "ci-op-x7k2p"


def go_yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=False, sort_keys=True)


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"creationTimestamp": None, "name": INFRA_ID, "namespace": "openshift-cluster-api-guests"}
    version = "infrastructure.cluster.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": {"ready": False}}


def aws_cluster() -> str:
    def rule(description: str, port: int, **source: Any) -> dict[str, Any]:
        return {"description": description, "fromPort": port, "protocol": "tcp", "toPort": port, **source}

    rules = [
        rule("MCS traffic from cluster network", 22623, sourceSecurityGroupRoles=["node", "controlplane"]),
        rule("Bootstrap SSH Access", 22, cidrBlocks=["0.0.0.0/0"]),
    ]
    network = {"additionalControlPlaneIngressRules": rules, "cni": {"cniIngressRules": []}, "vpc": {"availability": 3}}
    return go_yaml(_object("AWSCluster", {"network": network, "region": "eu-central-1", "sshKeyName": ""}))


def azure_cluster(**extra_rule: Any) -> str:
    rule = {"action": "Allow", "destinationPorts": "6443", "direction": "Inbound", "name": "apiserver_in"}
    rules = [{**rule, "priority": 101, "source": "*"}, *([extra_rule] if extra_rule else [])]
    group = {"name": f"{INFRA_ID}-nsg", "securityRules": rules}
    subnets = [
        {"cidrBlocks": [f"10.0.{number}.0/24"], "name": f"{INFRA_ID}-{role}", "role": role, "securityGroup": group}
        for number, role in enumerate(("control-plane", "node"))
    ]
    # No aliases: Go writes every value out.
    text = yaml.dump(_object("AzureCluster", {"networkSpec": {"subnets": subnets}}), Dumper=_NoAliases, sort_keys=True)
    assert isinstance(text, str)
    return text


def ibmcloud_cluster() -> str:
    source = {
        "portRange": {"maximumPort": 22, "minimumPort": 22},
        "protocol": "tcp",
        "remotes": [{"remoteType": "any"}],
    }
    ssh = {"action": "allow", "direction": "inbound", "source": source}
    groups = [
        {"name": f"{INFRA_ID}-sg-cluster-wide", "rules": [ssh]},
        {"name": f"{INFRA_ID}-security-group-bootstrap", "rules": [ssh]},
    ]
    spec = {"network": {"resourceGroup": INFRA_ID, "securityGroups": groups}, "region": "eu-de", "zone": "eu-de-1"}
    text = yaml.dump(_object("IBMVPCCluster", spec), Dumper=_NoAliases, sort_keys=True)
    assert isinstance(text, str)
    return text


def powervs_cluster() -> str:
    """As releases before the tunnel have it: the control plane's group is there, without a rule."""
    groups = [{"name": f"{INFRA_ID}-sg-kube-api-lb", "rules": []}, {"name": f"{INFRA_ID}-sg-control-plane"}]
    return go_yaml(_object("IBMPowerVSCluster", {"vpcSecurityGroups": groups, "zone": "osa21"}))


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


MANIFESTS: Final = {
    "aws": ("02_infra-cluster.yaml", aws_cluster),
    "azure": ("02_azure-cluster.yaml", azure_cluster),
    "ibmcloud": ("01_ibmcloud-cluster.yaml", ibmcloud_cluster),
    "powervs": ("02_powervs-cluster.yaml", powervs_cluster),
}
