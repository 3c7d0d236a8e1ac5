"""Every key of cluster.yaml with its value type and explanation; the reader, the schema and the example use this table.

A value type reads values and describes them in JSON Schema.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from umbilical.hardway.config.cluster import ClusterProfile, MachinesKind, Switch
from umbilical.manifests.objects import IMAGE, LABEL
from umbilical.manifests.sections import YamlSection
from umbilical.pki.profiles import KeyType

Schema = dict[str, Any]


class ValueType(Protocol):
    def read(self, section: YamlSection, key: str) -> Any:
        """Read the key's value; problems are recorded in the section."""

    @property
    def schema(self) -> Schema: ...


@dataclass(frozen=True)
class TextValue:
    rule: str
    """A regular expression for the whole value."""
    hint: str

    def read(self, section: YamlSection, key: str) -> str:
        return section.text(key, "", rule=self.rule, hint=self.hint)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^(?:{self.rule})$"}


@dataclass(frozen=True)
class TextListValue:
    rule: str
    hint: str

    def read(self, section: YamlSection, key: str) -> tuple[str, ...]:
        return section.texts(key, rule=self.rule, hint=self.hint)

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "pattern": f"^(?:{self.rule})$"}}


@dataclass(frozen=True)
class NumberValue:
    first: int
    last: int

    def read(self, section: YamlSection, key: str) -> int:
        return section.number(key, self.first, range(self.first, self.last + 1))

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.first, "maximum": self.last}


@dataclass(frozen=True)
class ChoiceValue:
    options: type[Enum]

    def read(self, section: YamlSection, key: str) -> Enum:
        return section.required_choice(key, self.options)

    @property
    def schema(self) -> Schema:
        return {"enum": [one.value for one in self.options]}


@dataclass(frozen=True)
class SwitchValue:
    """YAML 1.1 reads a bare `on` and `off` as booleans, so both spellings are accepted."""

    def read(self, section: YamlSection, key: str) -> Switch:
        value = section.take(key)
        spelled = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
        return YamlSection({key: spelled}, section.path, section.problems).choice(key, Switch.AUTO)

    @property
    def schema(self) -> Schema:
        return {"enum": [*(one.value for one in Switch), True, False]}


@dataclass(frozen=True)
class AddressValue:
    def read(self, section: YamlSection, key: str) -> Any:
        return section.address(key)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}


@dataclass(frozen=True)
class NetworkValue:
    def read(self, section: YamlSection, key: str) -> Any:
        return section.network(key)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"}


@dataclass(frozen=True)
class ConstantValue:
    value: str

    def read(self, section: YamlSection, key: str) -> str:
        return section.text(key, "", rule=re.escape(self.value), hint=f"it must be {self.value}")

    @property
    def schema(self) -> Schema:
        return {"const": self.value}


ADDRESS: Final = AddressValue()
NETWORK: Final = NetworkValue()
ON_OFF: Final = SwitchValue()


API_VERSION: Final = "umbilical.dev/v1alpha1"
KIND: Final = "HardwayCluster"

# etcd gets slower with each member; seven is the most that its documentation recommends.
MAX_MASTERS: Final = 9
MAX_WORKERS: Final = 500

_LABEL: Final = TextValue(LABEL.pattern, "expected a DNS label: a-z, 0-9 and hyphens, at most 63 characters")
_DOMAIN: Final = TextValue(rf"({LABEL.pattern}\.)*{LABEL.pattern}", "expected a domain in lower case")
_IMAGE: Final = TextValue(IMAGE.pattern, "expected an image reference: letters, digits and . _ : / @ -")
_VERSION: Final = TextValue(r"v?[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*", 'expected a version like "4.18.0", in quotes')
_TAG: Final = TextValue(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "expected an image tag")
_PATH: Final = TextValue(r"[^\x00-\x1f]+", "expected a path")
# These values are written into scripts and XML without quoting.
_PLAIN_PATH: Final = TextValue(r"(/[A-Za-z0-9._-]+)+", "expected an absolute path without blanks")
_FILE_NAME: Final = TextValue(r"[A-Za-z0-9][A-Za-z0-9._-]*", "expected a file name without blanks and slashes")
_INTERFACE: Final = TextValue(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", "expected an interface name of at most 15 characters")
_MAC: Final = TextValue(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "expected a MAC address like 52:54:00:12:34:56, in lower case")
_SSH_KEYS: Final = TextListValue(
    r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
    r" [A-Za-z0-9+/]+={0,2}( [^\x00-\x1f]*)?",
    "expected a public key as in ~/.ssh/id_ed25519.pub",
)
_PORT: Final = NumberValue(1, 65535)
_HOURS: Final = NumberValue(1, 24 * 365)


@dataclass(frozen=True)
class Key:
    path: str
    value_type: ValueType
    about: str
    """One or two sentences, without the default, which is computed."""
    only: ClusterProfile | MachinesKind | None = None
    """The only profile or kind of machines that accepts the key; None: all of them."""
    is_needed: bool = False


KEYS: Final[tuple[Key, ...]] = (
    Key("apiVersion", ConstantValue(API_VERSION), "Version of this file format.", is_needed=True),
    Key("kind", ConstantValue(KIND), "Type of this file.", is_needed=True),
    Key(
        "profile",
        ChoiceValue(ClusterProfile),
        "openshift: RHCOS and a release. kubernetes: upstream programs.",
        None,
        True,
    ),
    Key("machines", ChoiceValue(MachinesKind), "lab: network namespaces of this machine. libvirt: virtual machines."),
    Key("name", _LABEL, "Name of the cluster, the first part of its domain."),
    Key("baseDomain", _DOMAIN, "Parent domain; the cluster's domain is NAME.BASEDOMAIN."),
    Key(
        "konnectivity",
        ON_OFF,
        "Tunnel from the bootstrap kube-apiserver to pods. auto: on if the release has an image for it.",
    ),
    Key(
        "kubeProxy",
        ON_OFF,
        "kube-proxy on every node. auto: off in OpenShift, where OVN-Kubernetes implements Services and operators that "
        "start earlier read the API's address from a file. Set on if they time out at the first Service address.",
    ),
    Key("release.image", _IMAGE, "Release image, by digest.", ClusterProfile.OPENSHIFT),
    Key(
        "release.directory",
        _PATH,
        "Directory of an extracted release (oc adm release extract --to), relative to this file.",
        ClusterProfile.OPENSHIFT,
    ),
    Key(
        "release.version",
        _VERSION,
        "Expected version; a release of another version is an error. A lab runs the programs of this version.",
    ),
    Key("release.repository", _IMAGE, "Repository of the images: REPOSITORY/PROGRAM:TAG.", ClusterProfile.KUBERNETES),
    Key("release.tag", _TAG, "Tag of the programs' images.", ClusterProfile.KUBERNETES),
    Key(
        "release.tunnelArchive",
        _PATH,
        "Archive of our image, as `make image` writes it, relative to this file. Every machine loads it, and the "
        "tunnel's server and agents run from it. Without it they run from an image that the lab makes.",
        MachinesKind.LAB,
    ),
    Key("networks.machine", NETWORK, "Network of the machines; the three networks must not overlap."),
    Key("networks.pods", NETWORK, "Network of the pods."),
    Key("networks.hostPrefix", NumberValue(1, 128), "Prefix length of each node's pod CIDR."),
    Key("networks.services", NETWORK, "Network of the Services; its first address is the Service kubernetes."),
    Key("networks.gateway", ADDRESS, "Default gateway of the machines."),
    Key("networks.dns", ADDRESS, "DNS server of the machines."),
    Key("networks.apiVip", ADDRESS, "Load balancer address for api and api-int."),
    Key("networks.ingressVip", ADDRESS, "Load balancer address for *.apps."),
    Key("networks.dhcp.first", ADDRESS, "First address of the DHCP range.", MachinesKind.LIBVIRT),
    Key("networks.dhcp.last", ADDRESS, "Last address of the DHCP range.", MachinesKind.LIBVIRT),
    *(
        Key(f"nodes.bootstrap.{name}", value_type, about)
        for name, value_type, about in (
            ("address", ADDRESS, "Address of the bootstrap machine, which stage 13 removes."),
            ("mac", _MAC, "MAC address of the card that gets the address; needed with several cards."),
            ("interface", _INTERFACE, "Name of the network card, as an alternative to the MAC address."),
        )
    ),
    *(
        Key(f"nodes.{group}.{name}", value_type, about)
        for group, counted in (("masters", NumberValue(1, MAX_MASTERS)), ("workers", NumberValue(0, MAX_WORKERS)))
        for name, value_type, about in (
            ("count", counted, f"Number of {group}."),
            ("firstAddress", ADDRESS, "Address of the first machine; the others follow it."),
            ("machines[].address", ADDRESS, "Address of this machine, instead of the computed one."),
            ("machines[].mac", _MAC, "MAC address of the network card that gets the address."),
            ("machines[].interface", _INTERFACE, "Name of the network card."),
        )
    ),
    Key("access.sshKeys", _SSH_KEYS, "SSH public keys that may log in as user core."),
    Key("access.sshKeyFile", _PATH, "SSH private key with which the pipeline logs in to nodes; only ssh reads it."),
    Key("access.pullSecretFile", _PATH, "JSON file with credentials for image registries, relative to this file."),
    *(
        Key(f"sizes.{role}.{name}", value_type, about, MachinesKind.LIBVIRT)
        for role in ("bootstrap", "master", "worker")
        for name, value_type, about in (
            ("cpus", NumberValue(1, 256), "Number of virtual CPUs."),
            ("memoryMiB", NumberValue(1024, 1 << 22), "Memory in MiB."),
            ("diskGiB", NumberValue(10, 1 << 16), "Disk size in GiB."),
        )
    ),
    *(
        Key(f"libvirt.{name}", value_type, about, MachinesKind.LIBVIRT)
        for name, value_type, about in (
            ("network", _LABEL, "Name of the libvirt network."),
            ("pool", _LABEL, "Name of the libvirt storage pool."),
            ("poolDirectory", _PLAIN_PATH, "Directory of the storage pool; QEMU may read files only there."),
            ("bridge", _INTERFACE, "Name of the network's bridge on this host."),
            ("uplink", _INTERFACE, "This host's outgoing network interface, for masquerading."),
            ("iso", _FILE_NAME, "File name of the RHCOS live image in the pool directory."),
            ("statsPort", _PORT, "Port of HAProxy's statistics page."),
        )
    ),
    Key("certificates.keyType", ChoiceValue(KeyType), "Type of all keys but those for service account tokens."),
    Key("certificates.shortHours", _HOURS, "Lifetime of the certificates that the installer issues for one day."),
    Key("certificates.budgetHours", _HOURS, "Maximum duration of an installation; no certificate may expire earlier."),
)
