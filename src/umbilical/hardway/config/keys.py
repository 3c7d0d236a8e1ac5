"""Every key of a cluster's file, with its kind and its explanation: the reader, the schema and the example share it.

A kind reads its values and describes them in JSON Schema.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from umbilical.hardway.config.cluster import ClusterProfile, MachinesKind, Switch
from umbilical.manifests.objects import IMAGE, LABEL
from umbilical.manifests.sections import Section
from umbilical.pki.profiles import KeyType

Schema = dict[str, Any]


class ValueType(Protocol):
    def read(self, section: Section, key: str) -> Any:
        """Take the key's value; what is wrong is noted in the section."""

    @property
    def schema(self) -> Schema: ...


@dataclass(frozen=True)
class TextValue:
    rule: str
    """A regular expression for the whole of it."""
    hint: str

    def read(self, section: Section, key: str) -> str:
        return section.text(key, "", rule=self.rule, hint=self.hint)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^(?:{self.rule})$"}


@dataclass(frozen=True)
class TextListValue:
    rule: str
    hint: str

    def read(self, section: Section, key: str) -> tuple[str, ...]:
        return section.texts(key, rule=self.rule, hint=self.hint)

    @property
    def schema(self) -> Schema:
        return {"type": "array", "items": {"type": "string", "pattern": f"^(?:{self.rule})$"}}


@dataclass(frozen=True)
class NumberValue:
    first: int
    last: int

    def read(self, section: Section, key: str) -> int:
        return section.number(key, self.first, range(self.first, self.last + 1))

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.first, "maximum": self.last}


@dataclass(frozen=True)
class ChoiceValue:
    options: type[Enum]

    def read(self, section: Section, key: str) -> Enum:
        return section.required_choice(key, self.options)

    @property
    def schema(self) -> Schema:
        return {"enum": [one.value for one in self.options]}


@dataclass(frozen=True)
class SwitchValue:
    """YAML 1.1 takes a bare `on` and `off` for booleans, so both spellings mean the same here."""

    def read(self, section: Section, key: str) -> Switch:
        value = section.take(key)
        spelled = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
        return Section({key: spelled}, section.path, section.problems).choice(key, Switch.AUTO)

    @property
    def schema(self) -> Schema:
        return {"enum": [*(one.value for one in Switch), True, False]}


@dataclass(frozen=True)
class AddressValue:
    def read(self, section: Section, key: str) -> Any:
        return section.address(key)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}


@dataclass(frozen=True)
class NetworkValue:
    def read(self, section: Section, key: str) -> Any:
        return section.network(key)

    @property
    def schema(self) -> Schema:
        return {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"}


@dataclass(frozen=True)
class ConstantValue:
    value: str

    def read(self, section: Section, key: str) -> str:
        return section.text(key, "", rule=re.escape(self.value), hint=f"it must be {self.value}")

    @property
    def schema(self) -> Schema:
        return {"const": self.value}


ADDRESS: Final = AddressValue()
NETWORK: Final = NetworkValue()
ON_OFF: Final = SwitchValue()


API_VERSION: Final = "umbilical.dev/v1alpha1"
KIND: Final = "HardwayCluster"

# etcd loses speed with each member, and nine vote already more slowly than anybody wants.
MAX_MASTERS: Final = 9
MAX_WORKERS: Final = 500

_LABEL: Final = TextValue(LABEL.pattern, "a DNS label is needed: a-z, 0-9 and hyphens, at most 63")
_DOMAIN: Final = TextValue(rf"({LABEL.pattern}\.)*{LABEL.pattern}", "a domain in small letters is needed")
_IMAGE: Final = TextValue(IMAGE.pattern, "an image reference is needed: letters, digits and . _ : / @ -")
_VERSION: Final = TextValue(
    r"v?[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*", "a version like 4.18.0 is needed; put it in quotes"
)
_TAG: Final = TextValue(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", "an image's tag is needed")
_PATH: Final = TextValue(r"[^\x00-\x1f]+", "a path is needed")
# These go into scripts and XML as they are.
_PLAIN_PATH: Final = TextValue(r"(/[A-Za-z0-9._-]+)+", "an absolute path without blanks is needed")
_FILE_NAME: Final = TextValue(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a file name without blanks and slashes is needed")
_INTERFACE: Final = TextValue(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", "a network interface's name is needed, at most 15 letters"
)
_MAC: Final = TextValue(
    r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "a MAC address like 52:54:00:12:34:56 is needed, in small letters"
)
_SSH_KEYS: Final = TextListValue(
    r"(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
    r" [A-Za-z0-9+/]+={0,2}( [^\x00-\x1f]*)?",
    "a public key as in ~/.ssh/id_ed25519.pub is needed",
)
_PORT: Final = NumberValue(1, 65535)
_HOURS: Final = NumberValue(1, 24 * 365)


@dataclass(frozen=True)
class Key:
    path: str
    kind: ValueType
    about: str
    """One sentence or two, without the default: that is computed."""
    only: ClusterProfile | MachinesKind | None = None
    """For which profile, or which machines, it means something; elsewhere it is refused."""
    is_needed: bool = False


KEYS: Final[tuple[Key, ...]] = (
    Key("apiVersion", ConstantValue(API_VERSION), "The version of this format.", is_needed=True),
    Key("kind", ConstantValue(KIND), "What this file describes.", is_needed=True),
    Key(
        "profile",
        ChoiceValue(ClusterProfile),
        "openshift: RHCOS and a release image. kubernetes: upstream programs.",
        None,
        True,
    ),
    Key("machines", ChoiceValue(MachinesKind), "lab: network namespaces of this machine. libvirt: virtual machines."),
    Key("name", _LABEL, "The cluster's name, the first part of its domain."),
    Key("baseDomain", _DOMAIN, "The domain below which the cluster has its own: NAME.BASEDOMAIN."),
    Key(
        "konnectivity",
        ON_OFF,
        "The tunnel by which the bootstrap apiserver reaches pods. auto: where the payload brings its programs.",
    ),
    Key("kubeProxy", ON_OFF, "kube-proxy on every node. auto: where no network operator implements services."),
    Key("release.image", _IMAGE, "The release image, by digest.", ClusterProfile.OPENSHIFT),
    Key(
        "release.directory",
        _PATH,
        "Where the release is extracted already (oc adm release extract --to), named from this file.",
        ClusterProfile.OPENSHIFT,
    ),
    Key("release.version", _VERSION, "The version that is wanted; another one in the release is refused."),
    Key(
        "release.repository",
        _IMAGE,
        "Where the programs' images are: REPOSITORY/PROGRAM:TAG.",
        ClusterProfile.KUBERNETES,
    ),
    Key("release.tag", _TAG, "Of the programs' images.", ClusterProfile.KUBERNETES),
    Key("networks.machine", NETWORK, "In which the machines are; the three networks must not overlap."),
    Key("networks.pods", NETWORK, "Addresses of pods."),
    Key("networks.hostPrefix", NumberValue(1, 128), "How large a piece of the pod network each node gets."),
    Key("networks.services", NETWORK, "Addresses of Services; the first one is kube-apiserver's."),
    Key("networks.gateway", ADDRESS, "The machines' way out."),
    Key("networks.dns", ADDRESS, "The machines' resolver."),
    Key("networks.apiVip", ADDRESS, "The load balancer's address for api and api-int."),
    Key("networks.ingressVip", ADDRESS, "The load balancer's address for *.apps."),
    Key("networks.dhcp.first", ADDRESS, "The first address that is given out.", MachinesKind.LIBVIRT),
    Key("networks.dhcp.last", ADDRESS, "The last address that is given out.", MachinesKind.LIBVIRT),
    *(
        Key(f"nodes.bootstrap.{name}", kind, about)
        for name, kind, about in (
            ("address", ADDRESS, "Of the machine that begins and is removed in stage 13."),
            ("mac", _MAC, "Of the card that gets the address; needed where a machine has several."),
            ("interface", _INTERFACE, "Its name, as an alternative to the MAC address."),
        )
    ),
    *(
        Key(f"nodes.{group}.{name}", kind, about)
        for group, counted in (("masters", NumberValue(1, MAX_MASTERS)), ("workers", NumberValue(0, MAX_WORKERS)))
        for name, kind, about in (
            ("count", counted, f"How many {group}."),
            ("firstAddress", ADDRESS, "The others follow it."),
            ("machines[].address", ADDRESS, "Of this machine, instead of the one that would follow."),
            ("machines[].mac", _MAC, "Of the card that gets the address."),
            ("machines[].interface", _INTERFACE, "The card's name."),
        )
    ),
    Key("access.sshKeys", _SSH_KEYS, "Public keys that the user core is entered with."),
    Key("access.sshKeyFile", _PATH, "The private key by which the pipeline enters nodes; only ssh reads it."),
    Key("access.pullSecretFile", _PATH, "Credentials for image registries, a JSON file, named from this file."),
    *(
        Key(f"sizes.{role}.{name}", kind, about, MachinesKind.LIBVIRT)
        for role in ("bootstrap", "master", "worker")
        for name, kind, about in (
            ("cpus", NumberValue(1, 256), "Virtual processors."),
            ("memoryMiB", NumberValue(1024, 1 << 22), "Memory."),
            ("diskGiB", NumberValue(10, 1 << 16), "Disk."),
        )
    ),
    *(
        Key(f"libvirt.{name}", kind, about, MachinesKind.LIBVIRT)
        for name, kind, about in (
            ("network", _LABEL, "The network's name in libvirt."),
            ("pool", _LABEL, "The storage pool's name in libvirt."),
            ("poolDirectory", _PLAIN_PATH, "Where the pool lies; qemu may read nothing elsewhere."),
            ("bridge", _INTERFACE, "The network's bridge on this host."),
            ("uplink", _INTERFACE, "This host's interface to the world, for masquerading."),
            ("iso", _FILE_NAME, "The RHCOS live image, a file of the pool directory."),
            ("ignitionPort", _PORT, "Where Ignition files are served while machines are installed."),
            ("statsPort", _PORT, "Where HAProxy shows its page."),
        )
    ),
    Key("certificates.keyType", ChoiceValue(KeyType), "Of every key but those that sign service account tokens."),
    Key("certificates.shortHours", _HOURS, "Life of what an installer gives one day."),
    Key("certificates.budgetHours", _HOURS, "How long an installation may take; no certificate may end before that."),
)
