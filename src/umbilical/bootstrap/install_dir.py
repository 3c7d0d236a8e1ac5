"""The directory that `openshift-install --dir` works in, read only: configs, platform, networks, addresses, keys, and
warnings about the order of the installer's steps.

The installer consumes what it was given, so that the same fact lies in a file at first and in the state file later.
"""

import base64
import binascii
import ipaddress
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
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
from umbilical.fault import BootstrapError, IgnitionError
from umbilical.host.files import write_file
from umbilical.manifests.objects import IpNetwork

if TYPE_CHECKING:
    from umbilical.ignition.config import Config

# The installer's own order; `none` and `external` write no key.
PLATFORMS: Final = (
    "aws", "openstack", "azure", "gcp", "ibmcloud", "baremetal", "ovirt", "powervc", "powervs", "vsphere", "nutanix",
)  # fmt: skip
STATE: Final = ".openshift_install_state.json"
MACHINES: Final = ".clusterapi_output"
MACHINE_PREFIX: Final = "Machine-openshift-cluster-api-guests-"
# Of platforms and infrastructure: they become parts of paths and of commands.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
IGNITION_FILES: Final = ("bootstrap.ign", "master.ign", "worker.ign")
# The installer's own bootstrap certificates are made for a day, counted from `create ignition-configs`.
USABLE: Final = timedelta(hours=24)
# An installation takes about an hour; what ends sooner than this may end within it.
SHORT: Final = timedelta(hours=3)
# What `create ignition-configs` is made from. It consumes them, so one that lies here was put back or edited since.
PARENTS: Final = ("install-config.yaml", "manifests", "openshift")
MADE_TOGETHER: Final = (*IGNITION_FILES, "metadata.json")


@dataclass(frozen=True)
class InstallDir:
    """Nothing is read before it is asked for. Every file may be missing; a broken one is a `BootstrapError`."""

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise BootstrapError(
                "UMB170",
                f"{self.path} is no install directory",
                "there is no directory of that name",
                "give the one that openshift-install was given: --dir DIR",
            )

    @property
    def bootstrap_ignition(self) -> Path:
        """Where bootstrap.ign lies. Raises BootstrapError: it was not made yet, or `create cluster` has consumed it."""
        path = self.path / "bootstrap.ign"
        if path.is_file():
            return path
        raise BootstrapError(
            "UMB170",
            f"there is no {path}",
            "`create ignition-configs` has not written it, or `create cluster` has used it up",
            f"openshift-install create ignition-configs --dir {self.path}",
        )

    @property
    def has_ignition_configs(self) -> bool:
        """Whether `create ignition-configs` has run, even if its files are consumed by now."""
        on_disk = any((self.path / name).exists() for name in IGNITION_FILES)
        return on_disk or "*bootstrap.Bootstrap" in self.state

    @property
    def manifests(self) -> Path:
        """Where the manifests for Cluster API providers lie, if the installer makes them."""
        return self.path / "cluster-api"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "auth" / "kubeconfig"

    @cached_property
    def state(self) -> JsonObject:
        """The state file by Go's type names; empty when there is none. It is full of keys: never show a value."""
        return read_json(self.path / STATE) or {}

    @cached_property
    def metadata(self) -> JsonObject:
        return read_json(self.path / "metadata.json") or {}

    @cached_property
    def install_config(self) -> JsonObject | None:
        """The user's file, or what the state file remembers of it; None when neither is there."""
        return read_yaml(self.path / "install-config.yaml") or self._remembered_config()

    @property
    def platform(self) -> str:
        """As install-config spells it. Raises BootstrapError: neither metadata.json nor install-config tells it."""
        for name in PLATFORMS:
            if self.metadata.get(name) is not None:
                return name
        chosen = (self.install_config or {}).get("platform")
        names = [name for name, value in chosen.items() if value is not None] if isinstance(chosen, dict) else []
        if len(names) != 1 or not isinstance(names[0], str) or not _NAME.fullmatch(names[0]):
            why = "neither metadata.json nor install-config.yaml nor the state file names one"
            raise BootstrapError("UMB173", f"the platform of {self.path} is not known", why, "pass --platform NAME")
        return names[0]

    @property
    def infra_id(self) -> str | None:
        known = self.metadata.get("infraID") or self._from_state("*installconfig.ClusterID").get("InfraID")
        return known if isinstance(known, str) and _NAME.fullmatch(known) else None

    @property
    def machine_networks(self) -> tuple[IpNetwork, ...]:
        """As configured; empty when nobody wrote them down. Then the route alone says what the node's address is."""
        networking = self._networking()
        listed = networking.get("machineNetwork")
        if not listed and networking.get("machineCIDR"):
            listed = [{"cidr": networking["machineCIDR"]}]
        values = [item.get("cidr") if isinstance(item, dict) else item for item in _list(listed)]
        return tuple(self._network("machineNetwork", value) for value in values)

    @property
    def use_ipv6(self) -> bool:
        """Whether nodes are addressed by IPv6: the installer goes by the first service network, IPv4 by default."""
        networking = self._networking()
        listed = _list(networking.get("serviceNetwork")) or _list([networking.get("serviceCIDR")])
        return bool(listed) and self._network("serviceNetwork", listed[0]).version == 6

    def bootstrap_addresses(self) -> BootstrapAddresses:
        """Say where the bootstrap machine is, from what the Cluster API providers left.

        Raises BootstrapError: this installer or platform leaves nothing, or no address is known yet.
        """
        path = self._machine_file()
        machine = read_yaml(path)
        if machine is None:
            raise _no_machine(f"{path} does not exist")
        return addresses_of(machine, path, self.platform, self.install_config)

    @contextmanager
    def ssh_key(self) -> Iterator[Path]:
        """Lend the key pair that the installer made for the bootstrap machine, as a file that is gone afterwards.

        Raises BootstrapError: the state file has none.
        """
        key = self._bytes_of_state("*tls.BootstrapSSHKeyPair", "Priv")
        if key is None or not key.startswith(b"-----BEGIN "):
            raise BootstrapError(
                "UMB174",
                f"{self.path} holds no SSH key for the bootstrap machine",
                f"{STATE} has no usable *tls.BootstrapSSHKeyPair",
                "name the key that belongs to install-config's sshKey: --ssh-key FILE",
            )
        with tempfile.TemporaryDirectory(prefix="umbilical-") as folder:
            yield write_file(Path(folder) / "bootstrap-key", key)

    def warnings(self, now: datetime) -> list[str]:
        """Tell, in a line each, why `create cluster` may discard or refuse the bootstrap.ign that lies here: its steps'
        order, and the day that its certificates last."""
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
            raise broken(origin, f"{value!r} in networking.{field} is no network such as 10.0.0.0/16") from None

    def _machine_file(self) -> Path:
        folder = self.path / MACHINES
        if self.infra_id is not None:
            return folder / f"{MACHINE_PREFIX}{self.infra_id}-bootstrap.yaml"
        found = sorted(folder.glob(f"{MACHINE_PREFIX}*-bootstrap.yaml"))
        if len(found) != 1:
            raise _no_machine(f"{folder} holds {len(found)} bootstrap machines, and metadata.json tells no infraID")
        return found[0]


def _list(value: Any) -> list[Any]:
    return [item for item in value if item is not None] if isinstance(value, list) else []


def _decoded(text: str, origin: Path) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise broken(origin, "a value that should be base64 is not") from None


def _no_machine(why: str) -> BootstrapError:
    what = "the bootstrap machine's address is not known"
    return BootstrapError("UMB172", what, f"{why}; only Cluster API installers leave one", SSH_HOST)


def _without_ignition(directory: InstallDir) -> Iterator[str]:
    if directory.has_ignition_configs:
        yield "bootstrap.ign is gone: `create cluster` consumed it, and changes no longer reach the bootstrap machine"
    elif any((directory.path / name).exists() for name in PARENTS):
        yield "`create ignition-configs` has not run: finish the edits of manifests first, then run it, then patch"


def _time_made(folder: Path) -> datetime:
    """Tell when `create ignition-configs` ran: a patch renews bootstrap.ign, so the oldest of its files counts."""
    present = [folder / name for name in MADE_TOGETHER if (folder / name).is_file()]
    return datetime.fromtimestamp(min(path.stat().st_mtime for path in present), UTC)


def _order(folder: Path, made: datetime) -> Iterator[str]:
    for name in PARENTS:
        path = folder / name
        if not path.exists():
            continue
        if _newest(path) > made:
            what = f"{name} is newer than bootstrap.ign: `create cluster` would make bootstrap.ign anew and discard"
            yield f"{what} every change in it; run `create ignition-configs` again, then patch"
        else:
            what = f"{name} lies beside bootstrap.ign: if it differs from what bootstrap.ign was made of,"
            yield f"{what} `create cluster` discards the patch; move it away"


def _newest(path: Path) -> datetime:
    # One level is enough: the installer reads manifests from the top of their directory only.
    files = [item for item in path.iterdir() if item.is_file()] if path.is_dir() else []
    return datetime.fromtimestamp(max(item.stat().st_mtime for item in (*files, path)), UTC)


def _age(made: datetime, now: datetime) -> Iterator[str]:
    if now - made > USABLE:
        hours = int((now - made).total_seconds() // 3600)
        what = f"the Ignition configs were made {hours} hours ago and are good for {USABLE // timedelta(hours=1)}"
        yield f"{what}: make them anew with `create ignition-configs`"


def _expiry(ignition: Path, now: datetime) -> Iterator[str]:
    ends = sorted(_certificate_ends(ignition))
    if not ends:
        return
    end, path = ends[0]
    shown = f"{path} in bootstrap.ign"
    others = sum(1 for when, _ in ends if when <= now) - 1
    if end <= now:
        more = f" (and {others} more)" if others else ""
        yield f"{shown}{more} expired at {_clock(end)}: `create cluster` refuses the file; make it anew"
    elif end - now < SHORT:
        yield f"{shown} expires at {_clock(end)}: start `create cluster` now, or make the file anew"


def _clock(when: datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M UTC")


def _certificate_ends(ignition: Path) -> Iterator[tuple[datetime, str]]:
    """Yield when each `*.crt` in it ends. What cannot be read is not ours to judge here: `verify` does."""
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
