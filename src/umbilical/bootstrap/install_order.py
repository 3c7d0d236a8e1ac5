"""Warnings about the order of the installer's steps, and about the day that its certificates last."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from umbilical.bootstrap.documents import read_bytes
from umbilical.fault import IgnitionError

if TYPE_CHECKING:
    from umbilical.bootstrap.install_dir import InstallDir
    from umbilical.ignition.config import Config

# The installer's own bootstrap certificates are made for a day, counted from `create ignition-configs`.
USABLE: Final = timedelta(hours=24)
# An installation takes about an hour; what ends sooner than this may end within it.
SHORT: Final = timedelta(hours=3)
# What `create ignition-configs` is made from. It consumes them, so one that lies here was put back or edited since.
PARENTS: Final = ("install-config.yaml", "manifests", "openshift")
MADE_TOGETHER: Final = ("bootstrap.ign", "master.ign", "worker.ign", "metadata.json")


def warnings(directory: "InstallDir", now: datetime) -> list[str]:
    """Each line says what was seen and what comes of it."""
    ignition = directory.path / "bootstrap.ign"
    if not ignition.is_file():
        return list(_without_ignition(directory))
    made = _time_made(directory.path)
    return [*_order(directory.path, made), *_age(made, now), *_expiry(ignition, now)]


def _without_ignition(directory: "InstallDir") -> Iterator[str]:
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
