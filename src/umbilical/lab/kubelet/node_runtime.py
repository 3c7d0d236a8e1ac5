"""What a kubelet finds on its node: a control group, a containerd with the lab's images, the kernel's settings."""

from typing import TYPE_CHECKING, Final

from umbilical.lab import cgroups
from umbilical.lab.kubelet import containerd, kubelet_config, node_images
from umbilical.lab.kubelet.needs import find_cni

if TYPE_CHECKING:
    from umbilical.lab.lab import Lab

_KERNEL_FILES: Final = "/run/kernel-settings"
# A kubelet finds the settings as it wants them, and leaves the machine's own alone. Mounts of the node are shared
# among its namespaces, as systemd has it: pods may ask for mounts that propagate.
_PREPARE: Final = """
set -e
mount --make-rshared /
folder=$1
shift
mkdir -p "$folder"
for setting in "$@"; do
  path=/proc/sys/${setting%=*} value=${setting#*=}
  [ -e "$path" ] && [ "$(cat "$path")" != "$value" ] || continue
  file=$folder/$(basename "$path")
  printf '%s\\n' "$value" > "$file"
  mount --bind "$file" "$path"
done
"""


def group_of(lab: "Lab", node: str) -> str:
    """Name the control group of a node's pods."""
    return f"{cgroups.lab_group(lab.state.name, lab.directory.path)}/{node}"


def make_group(lab: "Lab", node: str) -> str:
    name = cgroups.lab_group(lab.state.name, lab.directory.path)
    if lab.state.cgroup != name:
        # Written down first: whatever happens next, `down` knows what to remove.
        lab.set_cgroup(name)
    group = group_of(lab, node)
    cgroups.make(group)
    return group


def start_containerd(lab: "Lab", node: str) -> None:
    """Start it unless it runs."""
    if is_running(lab, node, containerd.PROCESS):
        return
    settings = [f"{path}={value}" for path, value in kubelet_config.KERNEL_SETTINGS.items()]
    lab.exec(node, ["sh", "-c", _PREPARE, "sh", _KERNEL_FILES, *settings]).check()
    plugins = find_cni()
    assert plugins is not None
    snapshotter = containerd.choose_snapshotter(lab, node)
    lab.write(node, containerd.CONFIG_PATH, containerd.config(snapshotter, plugins).encode(), 0o644)
    node_images.start_with_images(lab, node, snapshotter)


def is_running(lab: "Lab", node: str, name: str) -> bool:
    return any((one.node, one.name, one.exit_code) == (node, name, None) for one in lab.processes())


def stop_if_running(lab: "Lab", node: str, name: str) -> None:
    if is_running(lab, node, name):
        lab.stop(node, name)
