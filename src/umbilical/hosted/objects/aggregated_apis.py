"""Aggregated APIs as the hosted cluster sees them: Services that lead to ClusterIPs of the management cluster.

kube-apiserver dials the endpoints' addresses, and the server gives such dials to the control-plane agent.
"""

import base64
from typing import Final

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import AggregatedApi, ApiGroup, HostedSpec
from umbilical.manifests.objects import Object, manifest

_PORT: Final = 443
_PORT_NAME: Final = "https"
# Kubernetes copies Endpoints into EndpointSlices by itself, and would list every address twice.
_SKIP_MIRROR: Final = {"endpointslice.kubernetes.io/skip-mirror": "true"}


def aggregated_apis(spec: HostedSpec) -> list[Object]:
    """Return nothing of a Service whose addresses are not known: an APIService without endpoints stalls discovery."""
    found: list[Object] = []
    for api in spec.aggregated_apis:
        if api.addresses:
            found += [_service(spec, api), _endpoints(spec, api), *_slices(spec, api)]
            found += [_api_service(spec, api, group) for group in api.groups]
    return found


def _service(spec: HostedSpec, api: AggregatedApi) -> Object:
    port = {"name": _PORT_NAME, "port": _PORT, "targetPort": _PORT, "protocol": "TCP"}
    head = metadata(spec, api.service, names.AGGREGATED_NAMESPACE)
    return manifest("v1", "Service", head, spec={"type": "ClusterIP", "ports": [port]})


def _endpoints(spec: HostedSpec, api: AggregatedApi) -> Object:
    """For a kube-apiserver that does not look at slices yet."""
    head = metadata(spec, api.service, names.AGGREGATED_NAMESPACE, _SKIP_MIRROR)
    subset = {
        "addresses": [{"ip": str(address)} for address in api.addresses],
        "ports": [{"name": _PORT_NAME, "port": _PORT, "protocol": "TCP"}],
    }
    return manifest("v1", "Endpoints", head, subsets=[subset])


def _slices(spec: HostedSpec, api: AggregatedApi) -> list[Object]:
    """One for each family: a slice holds addresses of one kind."""
    found = []
    for version in sorted({address.version for address in api.addresses}):
        labels = {"kubernetes.io/service-name": api.service}
        head = metadata(spec, f"{api.service}-ipv{version}", names.AGGREGATED_NAMESPACE, labels)
        addresses = [str(address) for address in api.addresses if address.version == version]
        found.append(
            manifest(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                head,
                addressType=f"IPv{version}",
                endpoints=[{"addresses": addresses, "conditions": {"ready": True}}],
                ports=[{"name": _PORT_NAME, "port": _PORT, "protocol": "TCP"}],
            )
        )
    return found


def _api_service(spec: HostedSpec, api: AggregatedApi, group: ApiGroup) -> Object:
    body = {
        "group": group.group,
        "version": group.version,
        "groupPriorityMinimum": group.group_priority,
        "versionPriority": group.version_priority,
        "caBundle": base64.b64encode(spec.aggregated_authority.strip().encode() + b"\n").decode(),
        "service": {"name": api.service, "namespace": names.AGGREGATED_NAMESPACE, "port": _PORT},
    }
    head = {"name": group.name, "labels": spec.labels}
    return manifest("apiregistration.k8s.io/v1", "APIService", head, spec=body)
