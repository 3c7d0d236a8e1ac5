import pytest

from umbilical.assets.bootkube.size_limit import LIMIT_BYTES, SECRET_BYTES, WARNING_BYTES, check_size, size_warning
from umbilical.assets.errors import AssetError


@pytest.mark.parametrize("platform", ["aws", "powervs", "vsphere"])
def test_a_platform_that_carries_the_file_in_a_secret_has_a_limit(platform: str) -> None:
    check_size(LIMIT_BYTES - 20_000, LIMIT_BYTES, platform)
    with pytest.raises(AssetError, match=f"UMB126.*{platform}") as refused:
        check_size(1000, LIMIT_BYTES + 1, platform)
    assert "1000 bytes long without" in refused.value.why


@pytest.mark.parametrize("platform", ["azure", "gcp", "baremetal", "none", None])
def test_others_have_none(platform: str | None) -> None:
    check_size(1000, 20 * SECRET_BYTES, platform)


def test_a_warning_comes_before_the_limit() -> None:
    assert size_warning(WARNING_BYTES, "vsphere") is None
    assert "vsphere can carry 1016 KiB" in (size_warning(WARNING_BYTES + 1, "vsphere") or "")
    assert "AWS, PowerVS and vSphere" in (size_warning(WARNING_BYTES + 1, None) or "")
    assert size_warning(WARNING_BYTES + 1, "gcp") is None
