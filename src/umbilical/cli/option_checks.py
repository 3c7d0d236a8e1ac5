"""Checks of options that both drop-in programs make, in upstream's words."""

import os
from pathlib import Path
from typing import Final

from umbilical.cli.drop_ins.go_values import quote
from umbilical.cli.drop_ins.pflag import FlagSet

DEFAULT_KUBERNETES_CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"


class OptionRefused(Exception):
    """An option or a combination of options cannot be served; the message is upstream's, without its prefix."""


def stat_fault(path: str) -> str | None:
    """Return Go's text for a file that is not there, None for one that is or whose state cannot be told."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return f"stat {path}: no such file or directory"
    except OSError:
        return None  # upstream lets it pass here and fails when it reads the file
    return None


def check_file(what: str, path: str) -> None:
    if path and (fault := stat_fault(path)):
        raise OptionRefused(f"error checking {what} {path}, got {fault}")


def check_pair(owner: str, certificate: str, key: str) -> None:
    """A certificate and its key come together; the key is looked at first."""
    check_file(f"{owner} key", key)
    if key and not certificate:
        raise OptionRefused(f"cannot have {owner} cert empty when {owner} key is set to {quote(key)}")
    check_file(f"{owner} cert", certificate)
    if certificate and not key:
        raise OptionRefused(f"cannot have {owner} key empty when {owner} cert is set to {quote(certificate)}")


def check_channel_size(flags: FlagSet) -> None:
    size = flags.number("xfr-channel-size")
    if size <= 0:
        raise OptionRefused(f"channel size {size} must be greater than 0")


def check_profiling(flags: FlagSet) -> None:
    if flags.switch("enable-contention-profiling") and not flags.switch("enable-profiling"):
        raise OptionRefused("if --enable-contention-profiling is set, --enable-profiling must also be set")


def optional_path(text: str) -> Path | None:
    return Path(text) if text else None


def random_id() -> str:
    """Return a random UUID (version 4), without the 25 ms that importing `uuid` takes."""
    bits = int.from_bytes(os.urandom(16), "big")
    bits = bits & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    digits = f"{bits:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
