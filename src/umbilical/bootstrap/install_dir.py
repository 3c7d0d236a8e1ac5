"""Reads the directory of `openshift-install --dir`: configs, platform, networks, addresses, keys, and warnings about
the order of the installer's steps. Never writes to it.

The installer deletes its input files, so a value is first in a file and later in the state file.
"""

import base64
import binascii
import ipaddress
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from umbilical.bootstrap.install_files import (
    SSH_HOST,
    BootstrapAddresses,
    JsonObject,
    addresses_of,
    broken,
    parse_yaml,
    read_bytes,
    read_json,
    read_yaml,
)
from umbilical.bootstrap.patch.config_facts import INSTALLER_CONFIG, SAFE_NAME, installer_release
from umbilical.fault import BootstrapError, IgnitionError
from umbilical.host.files import write_file
from umbilical.manifests.objects import IpNetwork

if TYPE_CHECKING:
    from umbilical.ignition.config import Config

# In the installer's order; `none` and `external` write no key.
PLATFORMS: Final = (
    "aws", "openstack", "azure", "gcp", "ibmcloud", "baremetal", "ovirt", "powervc", "powervs", "vsphere", "nutanix",
)  # fmt: skip
STATE: Final = ".openshift_install_state.json"
MACHINES: Final = ".clusterapi_output"
MACHINE_PREFIX: Final = "Machine-openshift-cluster-api-guests-"
IGNITION_FILES: Final = ("bootstrap.ign", "master.ign", "worker.ign")
# The installer's bootstrap certificates are valid for a day, starting at `create ignition-configs`.
USABLE: Final = timedelta(hours=24)
# An installation takes about an hour: a certificate with less time left may expire during it.
SHORT: Final = timedelta(hours=3)
# Inputs of `create ignition-configs`, which deletes them: one that exists was put back or edited since.
PARENTS: Final = ("install-config.yaml", "manifests", "openshift")
MADE_TOGETHER: Final = (*IGNITION_FILES, "metadata.json")


@dataclass(frozen=True)
class InstallDir:
    """Reads files only on access. Every file may be missing; a broken one is a `BootstrapError`."""

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise BootstrapError(
                "UMB170",
                f"{self.path} is not an install directory",
                "there is no directory of that name",
                "give the same directory as to openshift-install: --dir DIR",
            )

    @property
    def bootstrap_ignition(self) -> Path:
        """Path of bootstrap.ign. Raises BootstrapError: it is not there yet, or `create cluster` has deleted it."""
        path = self.path / "bootstrap.ign"
        if path.is_file():
            return path
        if self.is_agent_based:
            raise BootstrapError(
                "UMB170",
                f"there is no {path}",
                "an agent-based installation has none: the host of rendezvousIP creates it once it has booted",
                "use an installer with its own tunnel, 4.23 or later: it needs no patch",
            )
        raise BootstrapError(
            "UMB170",
            f"there is no {path}",
            "`create ignition-configs` has not run, or `create cluster` has deleted the file",
            f"openshift-install create ignition-configs --dir {self.path}",
        )

    @property
    def is_agent_based(self) -> bool:
        """Whether `openshift-install agent create` has its input or output here."""
        return any((self.path / name).exists() for name in ("agent-config.yaml", "rendezvousIP"))

    @property
    def has_ignition_configs(self) -> bool:
        """Whether `create ignition-configs` has run, even if its files are deleted by now."""
        on_disk = any((self.path / name).exists() for name in IGNITION_FILES)
        return on_disk or "*bootstrap.Bootstrap" in self.state

    @property
    def manifests(self) -> Path:
        """Directory of the manifests for Cluster API providers, if the installer writes them."""
        return self.path / "cluster-api"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "auth" / "kubeconfig"

    @cached_property
    def state(self) -> JsonObject:
        """The state file, by Go type name; empty without the file. It contains keys: never print a value."""
        return read_json(self.path / STATE) or {}

    @cached_property
    def metadata(self) -> JsonObject:
        return read_json(self.path / "metadata.json") or {}

    @cached_property
    def install_config(self) -> JsonObject | None:
        """The user's file, or its copy in the state file; None if neither exists."""
        return read_yaml(self.path / "install-config.yaml") or self._remembered_config()

    @property
    def platform(self) -> str:
        """Name as in install-config. Raises BootstrapError: neither metadata.json nor install-config has it."""
        for name in PLATFORMS:
            if self.metadata.get(name) is not None:
                return name
        chosen = (self.install_config or {}).get("platform")
        names = [name for name, value in chosen.items() if value is not None] if isinstance(chosen, dict) else []
        if len(names) != 1 or not isinstance(names[0], str) or not SAFE_NAME.fullmatch(names[0]):
            why = "neither metadata.json nor install-config.yaml nor the state file names a platform"
            raise BootstrapError("UMB173", f"the platform of {self.path} was not found", why, "add --platform NAME")
        return names[0]

    @property
    def infra_id(self) -> str | None:
        known = self.metadata.get("infraID") or self._from_state("*installconfig.ClusterID").get("InfraID")
        return known if isinstance(known, str) and SAFE_NAME.fullmatch(known) else None

    @property
    def release(self) -> str | None:
        """The installer's release such as `4.18`; known between `create manifests` and `create ignition-configs`."""
        return installer_release(read_yaml(self.path / "openshift" / PurePath(INSTALLER_CONFIG).name) or {})

    @property
    def machine_networks(self) -> tuple[IpNetwork, ...]:
        """As configured; empty if not configured. Then the route alone decides the node's address."""
        networking = self._networking()
        listed = networking.get("machineNetwork")
        if not listed and networking.get("machineCIDR"):
            listed = [{"cidr": networking["machineCIDR"]}]
        values = [item.get("cidr") if isinstance(item, dict) else item for item in _list(listed)]
        return tuple(self._network("machineNetwork", value) for value in values)

    @property
    def use_ipv6(self) -> bool:
        """Whether nodes use IPv6: the first service network decides, as in the installer; IPv4 by default."""
        networking = self._networking()
        listed = _list(networking.get("serviceNetwork")) or _list([networking.get("serviceCIDR")])
        return bool(listed) and self._network("serviceNetwork", listed[0]).version == 6

    def bootstrap_addresses(self) -> BootstrapAddresses:
        """Return the bootstrap machine's addresses from the Cluster API providers' output.

        Raises BootstrapError: this installer or platform writes none, or no address is known yet.
        """
        path = self._machine_file()
        machine = read_yaml(path)
        if machine is None:
            raise _no_machine(f"{path} does not exist")
        return addresses_of(machine, path, self.platform, self.install_config)

    @contextmanager
    def ssh_key(self) -> Iterator[Path]:
        """Write the installer's SSH key for the bootstrap machine to a temporary file, deleted afterwards.

        Raises BootstrapError: the state file has no key.
        """
        key = self._bytes_of_state("*tls.BootstrapSSHKeyPair", "Priv")
        if key is None or not key.startswith(b"-----BEGIN "):
            raise BootstrapError(
                "UMB174",
                f"{self.path} holds no SSH key for the bootstrap machine",
                f"{STATE} has no usable *tls.BootstrapSSHKeyPair",
                "give the private key of install-config's sshKey: --ssh-key FILE",
            )
        with tempfile.TemporaryDirectory(prefix="umbilical-") as folder:
            yield write_file(Path(folder) / "bootstrap-key", key)

    def warnings(self, now: datetime) -> list[str]:
        """List why `create cluster` may discard or reject this bootstrap.ign: order of steps, expired certificates."""
        ignition = self.path / "bootstrap.ign"
        if not ignition.is_file():
            return list(_without_ignition(self))
        made = _time_made(self.path)
        return [*_order(self.path, made), *_age(made, now), *_expiry(ignition, now)]

    def _remembered_config(self) -> JsonObject | None:
        asset = self._from_state("*installconfig.InstallConfig")
        if isinstance(asset.get("config"), dict):
            return dict(asset["config"])
        file = asset.get("file")
        if not isinstance(file, dict) or not isinstance(file.get("Data"), str):
            return None
        return parse_yaml(_decoded(file["Data"], self.path / STATE), self.path / STATE)

    def _from_state(self, kind: str) -> JsonObject:
        found = self.state.get(kind)
        return found if isinstance(found, dict) else {}

    def _bytes_of_state(self, kind: str, field: str) -> bytes | None:
        value = self._from_state(kind).get(field)
        if not isinstance(value, str) or not value:
            return None
        return _decoded(value, self.path / STATE)

    def _networking(self) -> JsonObject:
        found = (self.install_config or {}).get("networking")
        return found if isinstance(found, dict) else {}

    def _network(self, field: str, value: object) -> IpNetwork:
        try:
            return ipaddress.ip_network(str(value), strict=False)
        except ValueError:
            origin = self.path / "install-config.yaml"
            raise broken(origin, f"{value!r} in networking.{field} is not a network such as 10.0.0.0/16") from None

    def _machine_file(self) -> Path:
        folder = self.path / MACHINES
        if self.infra_id is not None:
            return folder / f"{MACHINE_PREFIX}{self.infra_id}-bootstrap.yaml"
        found = sorted(folder.glob(f"{MACHINE_PREFIX}*-bootstrap.yaml"))
        if len(found) != 1:
            raise _no_machine(f"{folder} holds {len(found)} bootstrap machines, and metadata.json has no infraID")
        return found[0]


def _list(value: Any) -> list[Any]:
    return [item for item in value if item is not None] if isinstance(value, list) else []


def _decoded(text: str, origin: Path) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise broken(origin, "a value is not base64") from None


def _no_machine(why: str) -> BootstrapError:
    what = "the bootstrap machine's address was not found"
    return BootstrapError("UMB172", what, f"{why}; only Cluster API installers write one", SSH_HOST)


def _without_ignition(directory: InstallDir) -> Iterator[str]:
    if directory.has_ignition_configs:
        yield "`create cluster` has deleted bootstrap.ign: changes no longer reach the bootstrap machine"
    elif any((directory.path / name).exists() for name in PARENTS):
        yield "`create ignition-configs` has not run: edit the manifests first, then run it, then patch"


def _time_made(folder: Path) -> datetime:
    """Return when `create ignition-configs` ran: its oldest file counts, since a patch rewrites bootstrap.ign."""
    present = [folder / name for name in MADE_TOGETHER if (folder / name).is_file()]
    return datetime.fromtimestamp(min(path.stat().st_mtime for path in present), UTC)


def _order(folder: Path, made: datetime) -> Iterator[str]:
    for name in PARENTS:
        path = folder / name
        if not path.exists():
            continue
        if _newest(path) > made:
            what = f"{name} is newer than bootstrap.ign: `create cluster` would write bootstrap.ign again and discard"
            yield f"{what} the patch; run `create ignition-configs` again, then patch"
        else:
            what = f"{name} exists next to bootstrap.ign: if it differs from the input of bootstrap.ign,"
            yield f"{what} `create cluster` discards the patch; move it away"


def _newest(path: Path) -> datetime:
    # The installer reads only the top level of a manifests directory.
    files = [item for item in path.iterdir() if item.is_file()] if path.is_dir() else []
    return datetime.fromtimestamp(max(item.stat().st_mtime for item in (*files, path)), UTC)


def _age(made: datetime, now: datetime) -> Iterator[str]:
    if now - made > USABLE:
        hours = int((now - made).total_seconds() // 3600)
        what = f"the Ignition configs are {hours} hours old and valid for {USABLE // timedelta(hours=1)}"
        yield f"{what}: run `create ignition-configs` again"


def _expiry(ignition: Path, now: datetime) -> Iterator[str]:
    ends = sorted(_certificate_ends(ignition))
    if not ends:
        return
    end, path = ends[0]
    shown = f"{path} in bootstrap.ign"
    others = sum(1 for when, _ in ends if when <= now) - 1
    if end <= now:
        more = f" (and {others} more)" if others else ""
        yield f"{shown}{more} expired at {_clock(end)}: `create cluster` fails; run `create ignition-configs` again"
    elif end - now < SHORT:
        yield f"{shown} expires at {_clock(end)}: start `create cluster` now, or run `create ignition-configs` again"


def _clock(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")


def _certificate_ends(ignition: Path) -> Iterator[tuple[datetime, str]]:
    """Yield the expiry of each `*.crt` in it. Unreadable content is skipped here and reported by `verify`."""
    from umbilical.ignition.config import read_config

    try:
        config = read_config(read_bytes(ignition) or b"")
    except IgnitionError:
        return
    yield from _ends_in(config)


def _ends_in(config: "Config") -> Iterator[tuple[datetime, str]]:
    from umbilical.pki.certificate import read_certificates
    from umbilical.pki.pem import BundleError

    for file in config.files:
        if not file.path.endswith(".crt"):
            continue
        try:
            certificates = read_certificates(file.content())
        except (IgnitionError, BundleError):
            continue
        yield from ((certificate.not_after, file.path) for certificate in certificates)
