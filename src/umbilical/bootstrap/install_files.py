"""Reads files of an install directory, with size limits: JSON and YAML, the bootstrap machine's addresses, the root CA.

They contain keys and pull secrets: no error message quotes their content.
"""

import base64
import binascii
import ipaddress
import json
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from umbilical.fault import BootstrapError, PkiError
from umbilical.manifests.objects import IpAddress
from umbilical.pki.pem import KeyPair

JsonObject = dict[str, Any]

# A state file contains a bootstrap.ign of some megabytes several times.
MAX_BYTES: Final = 256 * 1024 * 1024


def read_json(path: Path) -> JsonObject | None:
    """Read one JSON object; None without the file. Raises BootstrapError: not readable, or not an object."""
    content = read_bytes(path)
    if content is None:
        return None
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        raise broken(path, f"line {error.lineno}: it is not JSON") from None
    except (ValueError, RecursionError):
        raise broken(path, "it is not JSON") from None
    return _object(path, value)


def read_yaml(path: Path) -> JsonObject | None:
    """Read one YAML mapping; None without the file. Raises BootstrapError: not readable, or not a mapping."""
    content = read_bytes(path)
    return None if content is None else parse_yaml(content, path)


def parse_yaml(content: bytes, origin: Path) -> JsonObject:
    import yaml

    try:
        value = yaml.safe_load(content)
    except yaml.MarkedYAMLError as error:
        # str(error) quotes lines of the file, which may hold a pull secret.
        mark = error.problem_mark
        raise broken(origin, "it is not YAML" if mark is None else f"line {mark.line + 1}: it is not YAML") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise broken(origin, "it is not YAML") from None
    return _object(origin, value)


def read_bytes(path: Path) -> bytes | None:
    """Read a regular file; None if it does not exist. A pipe or a device could block, so it is an error."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise broken(path, "it is not a regular file")
        if status.st_size > MAX_BYTES:
            raise broken(path, f"it has {status.st_size} bytes, more than any installer writes")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise broken(path, error.strerror or str(error)) from error


def broken(path: Path, why: str) -> BootstrapError:
    return BootstrapError("UMB171", f"could not read {path}", why, f"check the file: ls -l {path}")


def _object(path: Path, value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise broken(path, "it is not a mapping of keys to values")
    return value


# Here the installer opens SSH to the machine's public address; the internal one does not answer from outside.
NEEDS_EXTERNAL: Final = frozenset({"aws", "gcp"})
HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)*")
SSH_HOST: Final = "add --ssh-host ADDRESS"


@dataclass(frozen=True)
class BootstrapAddresses:
    ssh: str
    """Address or name for SSH."""
    internal: tuple[IpAddress, ...]
    """Addresses in the machine's own network, in the order of its status."""

    def node_ip(self, *, use_ipv6: bool) -> IpAddress | None:
        """Choose the address that agents dial; None if the machine has no address of that family."""
        version = 6 if use_ipv6 else 4
        return next((address for address in self.internal if address.version == version), None)


def addresses_of(
    machine: JsonObject, origin: Path, platform: str, install_config: JsonObject | None
) -> BootstrapAddresses:
    """Apply the installer's rule to a Machine object. Raises BootstrapError: it has no address for SSH."""
    external = _of_type(machine, "ExternalIP", origin)
    internal = _of_type(machine, "InternalIP", origin)
    return BootstrapAddresses(_ssh_address(external, internal, origin, platform, install_config or {}), internal)


def _ssh_address(
    external: tuple[IpAddress, ...],
    internal: tuple[IpAddress, ...],
    origin: Path,
    platform: str,
    install_config: JsonObject,
) -> str:
    is_public = install_config.get("publish") != "Internal"
    if platform == "azure" and is_public:
        # The load balancer of the API forwards its port 22 to the bootstrap machine, which has no public address.
        return _api_name(install_config, origin)
    if platform in NEEDS_EXTERNAL and is_public and not external:
        raise _nowhere(origin, f"no ExternalIP, which SSH needs on a public {platform} installation")
    choice = external + internal
    if platform == "vsphere":
        choice = tuple(address for address in choice if address.version == 4) or choice
    if not choice:
        raise _nowhere(origin, "status.addresses has no ExternalIP and no InternalIP")
    return str(choice[0])


def _api_name(install_config: JsonObject, origin: Path) -> str:
    metadata = install_config.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    host = f"api.{name}.{install_config.get('baseDomain')}"
    # The name becomes an argument of ssh: it must not look like an option.
    if not name or not install_config.get("baseDomain") or not HOST_NAME.fullmatch(host):
        raise _nowhere(origin, "on azure SSH uses the API's name, and install-config.yaml has no valid name")
    return host


def _of_type(machine: JsonObject, kind: str, origin: Path) -> tuple[IpAddress, ...]:
    status = machine.get("status")
    listed = status.get("addresses") if isinstance(status, dict) else None
    if listed is not None and not isinstance(listed, list):
        raise broken(origin, "status.addresses is not a list")
    return tuple(_address(item, origin) for item in listed or () if isinstance(item, dict) and item.get("type") == kind)


def _address(item: dict[Any, Any], origin: Path) -> IpAddress:
    try:
        return ipaddress.ip_address(str(item.get("address")))
    except ValueError:
        raise broken(origin, f"{item.get('address')!r} in status.addresses is not an IP address") from None


def _nowhere(origin: Path, why: str) -> BootstrapError:
    return BootstrapError("UMB172", "the bootstrap machine's address was not found", f"{origin.name}: {why}", SSH_HOST)


ROOT_AUTHORITY: Final = "*tls.RootCA"
"""The file maps Go type names to their fields; byte slices are base64."""


def root_authority_from_state(content: bytes) -> KeyPair:
    """Read the installer's root CA from its state. Raises PkiError: it holds none (yet), or is not a state file."""
    fields = _state(content).get(ROOT_AUTHORITY)
    if not isinstance(fields, dict):
        raise _unusable(f"it has no {ROOT_AUTHORITY}; the first `openshift-install create` writes it")
    return KeyPair(_pem(fields, "CertRaw"), _pem(fields, "KeyRaw"))


def _state(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        # The parser's message could quote the file.
        raise _unusable("it is not JSON") from None
    if not isinstance(value, dict):
        raise _unusable("it is not a JSON object")
    return value


def _pem(fields: dict[str, Any], name: str) -> bytes:
    text = fields.get(name)
    if not isinstance(text, str) or not text:
        raise _unusable(f"{ROOT_AUTHORITY} has no {name}")
    try:
        pem = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _unusable(f"{name} of {ROOT_AUTHORITY} is not base64") from None
    if not pem.lstrip().startswith(b"-----BEGIN "):
        raise _unusable(f"{name} of {ROOT_AUTHORITY} is not PEM")
    return pem


def _unusable(why: str) -> PkiError:
    remedy = "give the .openshift_install_state.json of the install directory, or use --ca-cert and --ca-key"
    return PkiError("UMB153", "the install state file holds no usable root CA", why, remedy)
