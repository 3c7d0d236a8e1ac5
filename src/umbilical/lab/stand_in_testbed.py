"""The testbed without Kubernetes: `lab-admission-caller` calls the webhook instead of kube-apiserver.

Networks, pods, certificates, the server's static pod, the egress file and the socket are the same. Without an API the
nodes read the DaemonSet and the webhook's pod from files in `/etc/kubernetes/daemons`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from umbilical.bootstrap.names import OWN, STATIC_POD
from umbilical.bootstrap.render.kube_apiserver import EGRESS_PATH
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab import objects
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import BOOTSTRAP, Testbed, WebhookVerdict
from umbilical.lab.transcript import CallResult
from umbilical.manifests.tree import yaml_bytes

CALLER: Final = "lab-admission-caller"
DAEMONS: Final = "/etc/kubernetes/daemons"
AGENTS_FILE: Final = f"{DAEMONS}/konnectivity-agent.yaml"
AUTHORITY_FILE: Final = "/etc/kubernetes/lab-service-ca.crt"
POD_SECONDS: Final = 60.0
CALL_SECONDS: Final = 60.0


class StandInTestbed(Testbed):
    _uses_tunnel = False

    @property
    def has_production(self) -> bool:
        return False

    @property
    def caller(self) -> str:
        return "kube-apiserver's stand-in"

    @property
    def cutter(self) -> str:
        return "delete its files, without an API"

    def start_control_plane(self) -> None:
        if self.runner.kind is not RunnerKind.PROCESS:
            why = "only the process runner reads pods from files"
            raise LabError("UMB853", "--stand-in does not work with --runner kubelet", why, "leave out --runner")
        self.runner.start(self.lab, BOOTSTRAP, None)
        self.transcript.saw(f"no Kubernetes here: {CALLER} replaces kube-apiserver")

    def start_nodes(self) -> None:
        for node in self.members:
            self.runner.start(self.lab, node.name, None)
        self.transcript.saw("the nodes read pods from files, without an API")

    def start_webhook(self) -> str:
        service = objects.make_service(self.lab.topology)
        self.lab.write(BOOTSTRAP, AUTHORITY_FILE, service.authority, 0o644)
        content = _documents([service.secret, service.pod])
        self.lab.write(service.node, f"{DAEMONS}/{objects.NAME}.yaml", content)
        address = self.wait("the webhook's pod", self._endpoint, POD_SECONDS)
        self.transcript.saw(f"{objects.NAMESPACE}/{objects.NAME} on {service.node}, {address}")
        return service.node

    def start_production(self) -> None:
        raise NotImplementedError("has_production is False")

    def call_webhook(self, verdict: str, *, production: bool = False) -> WebhookVerdict:
        answer = self._call(verdict, 1)
        text = answer["message"] or f"{answer['call']} by {objects.WEBHOOK}"
        return WebhookVerdict(CallResult(answer["call"]), text)

    def call_times(self, count: int) -> list[float]:
        answer = self._call("allow", count)
        if answer["calls"][CallResult.ALLOWED.value] != count:
            raise LabError(
                "UMB855", f"not all of {count} calls were allowed", str(answer["calls"]), "umbilical lab run --keep"
            )
        return [float(seconds) for seconds in answer["callSeconds"]]

    def use_tunnel(self) -> None:
        self._uses_tunnel = True
        self.transcript.saw(f"--egress-selector-config-file={EGRESS_PATH}")

    def start_agents(self) -> None:
        content = _documents(self.tunnel.objects)
        for node in self.members:
            self.lab.write(node.name, AGENTS_FILE, content)

    def teardown(self) -> str:
        """Delete the files; `umbilical bootstrap teardown` needs an API."""
        for node in self.members:
            self.lab.remove(node.name, AGENTS_FILE)
        gone = (STATIC_POD, OWN.pki_directory, OWN.agent_secret)
        for path in gone:
            self.lab.remove(BOOTSTRAP, path)
        self.wait("the server to end", self._look_for_end, POD_SECONDS)
        self.lab.remove(BOOTSTRAP, self.tunnel.spec.socket_on_host)
        return "\n".join(f"{path} removed" for path in gone)

    def restore(self, secrets: Mapping[str, str] | None) -> None:
        super().restore(secrets)
        self._uses_tunnel = self.parts is not None

    def leftovers(self) -> list[str]:
        return self.node_leftovers()

    def retire_bootstrap(self) -> None:
        raise NotImplementedError("has_production is False")

    def _call(self, verdict: str, count: int) -> dict[str, Any]:
        egress = ["--egress-selector-config-file", EGRESS_PATH] if self._uses_tunnel else []
        options = [f"--address={self._endpoint()}", f"--service={objects.NAME}", f"--namespace={objects.NAMESPACE}"]
        asked = [f"--webhook={objects.WEBHOOK}", f"--ca-file={AUTHORITY_FILE}", f"--count={count}"]
        stdin = json.dumps(objects.judged(verdict)).encode()
        command = [CALLER, *egress, *options, *asked]
        done = self.lab.exec(BOOTSTRAP, command, stdin=stdin, timeout_seconds=CALL_SECONDS).check()
        answer = json.loads(done.text)
        assert isinstance(answer, dict)
        return answer

    def _endpoint(self) -> str:
        pod = self.find_pod(objects.service_node(self.lab.topology), objects.NAME)
        if pod is None or not pod.is_ready:
            raise NotYet("the pod is not ready" if pod else "the pod does not exist")
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        return f"{host}:{objects.PORT}"

    def _look_for_end(self) -> None:
        if self.find_pod(BOOTSTRAP, "konnectivity-server") is not None:
            raise NotYet("it is still running")


def _documents(wanted: Sequence[dict[str, Any]]) -> bytes:
    return b"---\n".join(map(yaml_bytes, wanted))
