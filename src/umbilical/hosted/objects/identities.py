"""Which agent may announce what: one line for each identity, read by our server."""

from umbilical.hosted.objects import names
from umbilical.hosted.objects.objects import metadata
from umbilical.hosted.objects.spec import HostedSpec, IpAddress
from umbilical.manifests.objects import Object, config_map


def identifier(address: IpAddress) -> str:
    """HyperShift writes `ipv4=` before IPv6 addresses as well; servers look at the address alone."""
    return f"ipv{address.version}={address}"


def identities_text(spec: HostedSpec) -> str:
    """Without it an agent of any node could claim the address of an aggregated API, and get its traffic."""
    lines = [f"CN={names.CN_AGENT} default-route=true"]
    if spec.known_addresses:
        allowed = " ".join(identifier(address) for address in spec.known_addresses)
        lines.append(f"CN={names.CN_CONTROL_PLANE_AGENT} {allowed}")
    return "".join(f"{line}\n" for line in lines)


def identities_config_map(spec: HostedSpec) -> Object:
    head = metadata(spec, names.IDENTITIES_CONFIG_MAP, spec.namespace)
    return config_map(head, {names.IDENTITIES_KEY: identities_text(spec)})
