"""How big a bootstrap config may be: some platforms carry the whole file in a Secret, and those end at 1 MiB."""

from typing import Final

from umbilical.fault import RenderError

SECRET_PLATFORMS: Final = frozenset({"aws", "powervs", "vsphere"})
"""Where Cluster API's bootstrap Secret holds the file; the others fetch it from a bucket, an image or a disk."""
SECRET_BYTES: Final = 1024 * 1024
# `create cluster` adds one manifest to the file and marshals it anew before it goes into the Secret.
RESERVED_BYTES: Final = 8 * 1024
LIMIT_BYTES: Final = SECRET_BYTES - RESERVED_BYTES
WARNING_BYTES: Final = 900 * 1024


def check_size(before: int, after: int, platform: str | None) -> None:
    """Refuse what the platform cannot carry.

    Raises:
        RenderError: the file would not reach the node.
    """
    if platform not in SECRET_PLATFORMS or after <= LIMIT_BYTES:
        return
    raise RenderError(
        "UMB126",
        f"the patched config would be {after} bytes long, {platform} carries {LIMIT_BYTES}",
        f"it goes to the node in a Secret, which holds 1 MiB; it is {before} bytes long without the tunnel",
        "take extra manifests out of openshift/ and create them after the installation",
    )


def size_warning(after: int, platform: str | None) -> str | None:
    if after <= WARNING_BYTES or (platform is not None and platform not in SECRET_PLATFORMS):
        return None
    where = platform or "AWS, PowerVS and vSphere"
    return f"{after // 1024} KiB: {where} can carry {LIMIT_BYTES // 1024} KiB, and little is left for manifests"
