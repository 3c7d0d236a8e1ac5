"""A bootstrap config unpacked into a scratch node, ready for bootkube.sh to be run, killed and started again.

The stand-ins for podman and oc record their calls and leave what the script needs next: rendered manifests, a
kube-apiserver configuration with its override, and copies of what was there when the cluster was made.
"""

import json
from typing import Any, Final

from tests.support.scratch_node import CALLS, Ended, ScratchNode

from umbilical.ignition.config import read_config

BOOTKUBE: Final = "/usr/local/bin/bootkube.sh"
RECORD: Final = "/var/log/openshift/bootkube.json"
AT_CREATION: Final = "/var/at-creation"
"""Copies of what the node had when cluster-bootstrap created its manifests."""
IMAGE: Final = "registry.example/payload@sha256:" + "ab" * 32
RUN_SECONDS: Final = 100.0

_PODMAN: Final = rf"""#!/bin/bash
set -eu
echo "podman $*" >>{CALLS}
output="" config="" override=""
for word in "$@"; do
    case "${{word}}" in
        --asset-output-dir=/assets/*) output="/opt/openshift/${{word#*=/assets/}}" ;;
        --config-output-file=/assets/*) config="/opt/openshift/${{word#*=/assets/}}" ;;
        --config-override-files=/assets/*) override="/opt/openshift/${{word#*=/assets/}}" ;;
    esac
done
if [ -n "${{output}}" ]; then
    mkdir -p "${{output}}/manifests" "${{output}}/bootstrap-manifests"
    echo "kind: ConfigMap" >"${{output}}/manifests/${{output##*/}}.yaml"
    echo "kind: Pod" >"${{output}}/bootstrap-manifests/${{output##*/}}-pod.yaml"
fi
if [ -n "${{config}}" ]; then
    cat "${{override:-/dev/null}}" >"${{config}}"
fi
case "$*" in
    *" image "*) echo "{IMAGE}" ;;
    *"--tear-down-early=false"*)
        mkdir -p {AT_CREATION}
        cp -a --no-clobber /opt/openshift/manifests {AT_CREATION}/
        cp -a --no-clobber /etc/kubernetes {AT_CREATION}/
        [ ! -d /opt/openshift/umbilical ] || cp -a --no-clobber /opt/openshift/umbilical {AT_CREATION}/
        ;;
esac
"""
_OC: Final = f"""#!/bin/bash
echo "oc $*" >>{CALLS}
case "$*" in
    *" release info "*) echo 4.99.1 ;;
esac
"""
# Sets the kill of the scratch node some commands behind the beginning of one stage.
_KILLER: Final = r"""
eval "$(declare -f record_service_stage_start | sed '1s/record_service_stage_start/begin_stage/')"
record_service_stage_start() {
    if [ "$1" = "${KILL_STAGE:-}" ]; then
        SCRATCH_KILL_AT=$((_scratch_steps + KILL_OFFSET))
    fi
    begin_stage "$1"
}
"""


class BootkubeNode:
    def __init__(self, node: ScratchNode, config: bytes) -> None:
        self.node = node
        for file in read_config(config).files:
            if file.source is not None:
                node.write(file.path, file.content(), file.mode or 0o644)
        library = node.read("/usr/local/bin/bootstrap-service-record.sh")
        node.write("/usr/local/bin/bootstrap-service-record.sh", library + _KILLER, 0o555)
        node.write("/usr/local/bin/podman", _PODMAN, 0o555)
        node.write("/usr/local/bin/oc", _OC, 0o555)

    def run(self) -> Ended:
        return self.node.run(BOOTKUBE, timeout_seconds=RUN_SECONDS)

    def run_killed_in(self, stage: str, offset: int) -> Ended:
        """Kill it by SIGKILL before the command of that number since the stage began."""
        environment = {"KILL_STAGE": stage, "KILL_OFFSET": str(offset)}
        return self.node.run(BOOTKUBE, environment=environment, timeout_seconds=RUN_SECONDS)

    def has(self, path: str) -> bool:
        return self.node.path(path).exists()

    def is_done(self, stage: str) -> bool:
        return self.has(f"/opt/openshift/{stage}.done")

    def record(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = json.loads(self.node.read(RECORD))
        return entries

    def stages(self, result: str = "success") -> list[str]:
        """The stages that ended so, in order."""
        ended = [entry for entry in self.record() if entry["phase"] == "stage end"]
        return [entry["stage"] for entry in ended if entry["result"] == result]
