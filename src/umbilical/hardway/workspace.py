"""The directory of a cluster: cluster.yaml, artifacts, the extracted release and rendered machine configs.

.umbilical/ keeps the random values of the cluster, and administrators' kubeconfigs with the API by address: no DNS is
needed for them.
"""

import json
import os
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from umbilical.fault import HardwayError, RenderError
from umbilical.hardway.artifacts import layout
from umbilical.hardway.artifacts.inputs import ClusterIdentity, Inputs, NodeBase, ReleasePayload
from umbilical.hardway.artifacts.machine_config import RENDERED, RENDERED_FILE, WORK, read_bases
from umbilical.hardway.artifacts.release import (
    METADATA,
    ReleaseCommand,
    read_release,
    release_commands,
    upstream_payload,
)
from umbilical.hardway.config.cluster import API_PORT, Cluster, NodeRole
from umbilical.hardway.config.reading import ResolvedConfig, read_cluster
from umbilical.hardway.ledger import RECORD
from umbilical.hardway.pki.certificate_set import Bundle
from umbilical.hardway.undoing import ARTIFACTS
from umbilical.host.files import make_directory, write_all, write_file
from umbilical.manifests.objects import IpAddress, kubeconfig
from umbilical.manifests.tree import Asset, yaml_bytes
from umbilical.pki.pem import KeyPair

CONFIG: Final = "cluster.yaml"
RELEASE: Final = "release"
"""Where a release is extracted to, unless cluster.yaml names another directory."""
# A release has about 900 files and 20 MB; anything much larger is a wrong directory.
MAX_RELEASE_FILES: Final = 5000
MAX_RELEASE_BYTES: Final = 256 << 20
_WORK: Final = f"{layout.MACHINE_CONFIG}/{WORK}"


def read_config(folder: Path) -> ResolvedConfig:
    """Read cluster.yaml. Raises HardwayError: UMB701, there is none; RenderError: UMB700, it is invalid."""
    path = folder / CONFIG
    try:
        content = path.read_bytes()
    except OSError as error:
        remedy = f"umbilical stage init --dir {folder}, or give another directory with --dir"
        raise HardwayError("UMB701", f"could not read {path}", error.strerror or str(error), remedy) from None
    try:
        return read_cluster(content)
    except RenderError as error:
        raise RenderError(error.code, f"{path}: {error.what}", error.why, error.remedy) from None


def read_artifacts(folder: Path) -> dict[str, Asset]:
    """Read artifacts/ by path, without machine-config's work directory. Raises HardwayError: UMB714, unreadable."""
    root = folder / ARTIFACTS
    return {
        name: Asset(name, _read(path), path.stat().st_mode & 0o7777)
        for path in sorted(_files(root))
        if not (name := str(PurePosixPath(path.relative_to(root)))).startswith(f"{_WORK}/")
    }


def write_artifacts(folder: Path, assets: Iterable[Asset], removed: Iterable[str] = ()) -> None:
    """Write artifacts and remove others, all or none. Raises HardwayError: UMB714, no write access."""
    root = folder / ARTIFACTS
    try:
        make_directory(root)
        write_all(list(assets), root, [root / path for path in removed])
    except OSError as error:
        why = error.strerror or str(error)
        raise HardwayError(
            "UMB714", f"could not write below {root}; nothing was changed", why, f"ls -ld {root}"
        ) from None


def key_pairs(artifacts: Mapping[str, Asset]) -> dict[str, KeyPair]:
    """Find the existing key pairs, by id."""
    pairs: dict[str, KeyPair] = {}
    for path, asset in artifacts.items():
        name = PurePosixPath(path)
        if str(name.parent) != layout.TLS or name.suffix not in (".crt", ".pub"):
            continue
        key = artifacts.get(layout.key(name.stem))
        if key is not None:
            pairs[name.stem] = KeyPair(asset.content, key.content)
    return pairs


def release_directory(folder: Path, cluster: Cluster) -> Path:
    return folder / Path(cluster.release.directory or RELEASE).expanduser()


def extraction_commands(folder: Path, cluster: Cluster) -> tuple[ReleaseCommand, ...]:
    """List the commands that extract the release; none if cluster.yaml names only a directory."""
    if not cluster.release.image:
        return ()
    secret = folder / Path(cluster.access.pull_secret_file).expanduser()
    return release_commands(cluster.release.image, str(secret), str(release_directory(folder, cluster)))


def read_payload(folder: Path, cluster: Cluster) -> ReleasePayload | None:
    """Read the release; None while it is not extracted.

    Raises:
        HardwayError: UMB714, the directory is unreadable, or is not a release.
        RenderError: UMB715 to UMB719, the release is incomplete or the wrong one.
    """
    if not cluster.is_openshift:
        return upstream_payload(cluster.release)
    root = release_directory(folder, cluster)
    # Our own directory may be incomplete after a kill; one that the user names is expected to be complete.
    if not root.is_dir() or not (cluster.release.directory or (root / METADATA).is_file()):
        return None
    return read_release(dict(_release_files(root)), cluster.release)


def read_node_bases(folder: Path) -> dict[NodeRole, NodeBase]:
    """Read the rendered machine configs; without any, the built-in base is used. Raises RenderError: UMB718."""
    root = folder / ARTIFACTS / _WORK / RENDERED
    files = {path.name: _read(path) for path in sorted(_files(root)) if RENDERED_FILE.fullmatch(path.name)}
    return read_bases(files) if files else {}


def read_pull_secret(folder: Path, cluster: Cluster) -> bytes:
    """Read the pull secret; empty if none is named. Raises HardwayError: UMB702, it is unreadable."""
    name = cluster.access.pull_secret_file
    if not name:
        return b""
    path = folder / Path(name).expanduser()
    try:
        return path.read_bytes()
    except OSError as error:
        remedy = f"save it there, or correct access.pullSecretFile in {CONFIG}"
        raise HardwayError("UMB702", f"could not read the pull secret {path}", error.strerror or "", remedy) from None


def _release_files(root: Path) -> Iterator[tuple[str, bytes]]:
    size = 0
    for number, path in enumerate(sorted(_files(root))):
        size += path.stat().st_size
        if number >= MAX_RELEASE_FILES or size > MAX_RELEASE_BYTES:
            why = f"it holds more than {MAX_RELEASE_FILES} files or {MAX_RELEASE_BYTES >> 20} MiB"
            raise HardwayError("UMB714", f"{root} is not an extracted release", why, "correct release.directory")
        yield str(PurePosixPath(path.relative_to(root))), _read(path)


def _files(root: Path) -> Iterator[Path]:
    """List regular files, without dot files: those are left by a killed write."""
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(place, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise HardwayError("UMB714", f"could not read {path}", why, f"ls -l {path}") from None


ADMIN: Final = "admin-kubeconfig-client"


def kubeconfigs(folder: Path, inputs: Inputs) -> Callable[[IpAddress | None], Path]:
    """Return a function that writes such a kubeconfig with mode 0600 and returns its path."""

    def write(address: IpAddress | None) -> Path:
        target = address or inputs.cluster.networks.api_vip
        path = kubeconfig_path(folder, target)
        make_directory(path.parent)
        content = address_kubeconfig(inputs, target)
        if not path.is_file() or path.read_bytes() != content:
            write_file(path, content, overwrite=True)
        return path

    return write


def kubeconfig_path(folder: Path, address: IpAddress) -> Path:
    return folder / RECORD / f"{address}.kubeconfig"


def address_kubeconfig(inputs: Inputs, address: IpAddress) -> bytes:
    host = f"[{address}]" if address.version == 6 else str(address)
    authority = inputs.certificates.bundle(Bundle.SERVER_CA)
    url = f"https://{host}:{API_PORT}"
    return yaml_bytes(kubeconfig("admin", url, authority, inputs.certificates[ADMIN], inputs.cluster.name))


IDENTITY_FILE: Final = "identity.json"
# Limit of platforms that name machines and volumes after it.
MAX_INFRASTRUCTURE_NAME: Final = 27
SUFFIX_LENGTH: Final = 5
# No vowels, so no words; no characters that look alike.
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
GROUPS: Final = 4
GROUP_LENGTH: Final = 5
PASSWORD_ALPHABET: Final = "abcdefghijkmnopqrstuvwxyzABCDEFGHIJKLMNPQRSTUVWXYZ23456789"
"""Without 0 and O, 1 and l."""
_FIELDS: Final = ("cluster_id", "infrastructure_name", "kubeadmin_password", "kubeadmin_hash")


def read_identity(folder: Path) -> ClusterIdentity | None:
    """Read the saved random values; None if there are none.

    Raises HardwayError: UMB713; the file is invalid. New values would make another cluster.
    """
    path = folder / RECORD / IDENTITY_FILE
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable_identity(path, getattr(error, "strerror", None) or "not valid JSON") from None
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) and value[name] for name in _FIELDS):
        raise _unreadable_identity(path, f"expected the keys {', '.join(_FIELDS)}")
    return ClusterIdentity(**{name: value[name] for name in _FIELDS})


def keep_identity(folder: Path, identity: ClusterIdentity) -> Path:
    """Write it with mode 0600: it holds a password."""
    path = make_directory(folder / RECORD) / IDENTITY_FILE
    content = json.dumps({name: getattr(identity, name) for name in _FIELDS}, indent=2) + "\n"
    return write_file(path, content.encode(), overwrite=True)


def forget_identity(folder: Path) -> None:
    """Delete the random values: the next cluster in this directory gets new ones."""
    (folder / RECORD / IDENTITY_FILE).unlink(missing_ok=True)


def draw_identity(name: str) -> ClusterIdentity:
    """Draw a cluster's random values. Raises HardwayError: UMB713; bcrypt is not installed."""
    password = draw_password()
    return ClusterIdentity(str(uuid.uuid4()), _infrastructure_name(name), password, _hashed(password))


def draw_password() -> str:
    """Draw a password like OpenShift's installer: four groups."""
    groups = ("".join(secrets.choice(PASSWORD_ALPHABET) for _ in range(GROUP_LENGTH)) for _ in range(GROUPS))
    return "-".join(groups)


def _infrastructure_name(name: str) -> str:
    suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(SUFFIX_LENGTH))
    return f"{name[: MAX_INFRASTRUCTURE_NAME - SUFFIX_LENGTH - 1].rstrip('-')}-{suffix}"


def _hashed(password: str) -> str:
    try:
        import bcrypt
    except ImportError:
        what = "could not hash the kubeadmin password"
        remedy = "pip install 'umbilical[hardway]'"
        raise HardwayError("UMB713", what, "the Python package bcrypt is not installed", remedy) from None
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(10)).decode()


def _unreadable_identity(path: Path, why: str) -> HardwayError:
    remedy = f"restore a backup; if the cluster is not built yet: rm {path}"
    return HardwayError("UMB713", f"could not read {path}", why, remedy)
