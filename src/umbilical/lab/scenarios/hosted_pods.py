"""The pods of a hosted control plane, as they are rendered, under the real kubelet and from the image.

The server runs beside kube-apiserver, both proxies beside a component, and an agent beside the control plane. One
kube-apiserver with one server; a killed or renewed server is in the scenario `hosted`.
"""

import re
import time
from datetime import UTC, datetime
from typing import Final

import yaml

from umbilical.bootstrap.render.render import KUBE_APISERVER_POD
from umbilical.host.waiting import NotYet
from umbilical.hosted.objects import names
from umbilical.hosted.objects.server import GRACE_SECONDS
from umbilical.lab import objects
from umbilical.lab.hosted import pods
from umbilical.lab.hosted.pods import AGENT_POD, COMPONENT, POD_NODE
from umbilical.lab.hosted.stage import HostedStage, complaint
from umbilical.lab.kubelet import containerd
from umbilical.lab.kubernetes_testbed import READY_SECONDS
from umbilical.lab.runner import ContainerStatus, PodStatus
from umbilical.lab.scenarios.hosted import show_need, show_reachable_api, show_unreachable_api, start_service
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.service_scenarios import real
from umbilical.lab.scenarios.webhook_through_tunnel import start_cluster
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import BOOTSTRAP, Testbed
from umbilical.lab.transcript import CallResult

SERVER_POD: Final = "kube-apiserver"
_MEMORY: Final = re.compile(r"^(Rss|Pss): +(\d+) kB$", re.MULTILINE)
# The pod's grace period, and a busy machine.
END_SECONDS: Final = GRACE_SECONDS + 60.0


def run(testbed: Testbed) -> None:
    made = pods.make_parts(testbed.lab.topology, datetime.now(UTC), testbed.options.server_image)
    stage = HostedStage(real(testbed), made, servers=(BOOTSTRAP,))
    start_cluster(testbed)
    _, address = start_service(stage)
    show_need(stage, address, POD_NODE)
    _start_server(stage)
    _show_calls(stage)
    _show_aggregated_api(stage)
    _show_proxies(stage, address)
    _show_memory(stage)


def _start_server(stage: HostedStage) -> None:
    transcript, testbed = stage.transcript, stage.testbed
    with transcript.step("the server beside kube-apiserver, in the pod that `umbilical hosted render` writes"):
        files = pods.kube_apiserver_files(stage.parts, stage.lab.read(BOOTSTRAP, KUBE_APISERVER_POD))
        for asset in files:
            if asset.path != KUBE_APISERVER_POD:
                stage.lab.write(BOOTSTRAP, asset.path, asset.content, asset.mode)
        testbed.change_apiserver(files[KUBE_APISERVER_POD].content)
        _saw_container(stage, _running(stage, BOOTSTRAP, SERVER_POD), names.SERVER)
        transcript.shows(server=True)
    with transcript.step("agents on every node, a DaemonSet"):
        stage.start_node_agents()
        workers = tuple(node.name for node in stage.topology.members)
        stage.wait_for_agents(workers)
        for node in workers:
            _saw_container(stage, _running(stage, node, names.AGENT), names.AGENT)
        transcript.shows(agents=workers)


def _show_calls(stage: HostedStage) -> None:
    transcript, testbed = stage.transcript, stage.testbed
    with transcript.step("through the tunnel the webhook allows and denies requests"):
        transcript.saw(testbed.wait_for(CallResult.ALLOWED, "allow").text)
        transcript.saw(testbed.wait_for(CallResult.DENIED, "deny").text)
        transcript.shows(call=CallResult.ALLOWED)


def _show_aggregated_api(stage: HostedStage) -> None:
    with stage.transcript.step("an aggregated API that no agent on a node can reach"):
        show_unreachable_api(stage, POD_NODE)
    with stage.transcript.step("with the control plane's agent, in its rendered pod, the API is available"):
        stage.testbed.runner.start(stage.lab, POD_NODE, None)
        stage.name_servers(POD_NODE, names.SERVER)
        stage.testbed.write_files(POD_NODE, pods.control_plane_agent(stage.parts))
        show_reachable_api(stage, POD_NODE, POD_NODE)
        _saw_container(stage, _running(stage, POD_NODE, AGENT_POD), names.AGENT)


def _show_proxies(stage: HostedStage, address: str) -> None:
    transcript = stage.transcript
    with transcript.step(f"both proxies beside {COMPONENT}, by the rendered patch"):
        stage.name_servers(POD_NODE, names.SERVER_LOCAL)
        patched = stage.lab.exec(
            BOOTSTRAP,
            ["kubectl", "patch", "--local", "-f", "-", "-o", "yaml", "--patch", pods.component_patch(stage.parts)],
            stdin=yaml.safe_dump(pods.component()).encode(),
        ).check()
        deployment = yaml.safe_load(patched.stdout)
        stage.testbed.write_files(POD_NODE, pods.static_pod(COMPONENT, deployment, stage.parts.management_objects))
        pod = _running(stage, POD_NODE, COMPONENT)
        for container in pod.containers[1:]:
            _saw_container(stage, pod, container.name)
    with transcript.step(f"{COMPONENT} calls the pod through both, with the environment of the patch"):
        for title, words in _curls(address).items():
            done = _exec(stage, pod.containers[0], f"curl --silent --show-error --max-time 30 {words}")
            transcript.saw(f"{title}: {done}")


def _curls(address: str) -> dict[str, str]:
    plain = f"http://{address}:{objects.PLAIN_PORT}/healthz"
    shown = "--output /dev/null --write-out '%{http_code} from %{remote_ip}'"
    return {
        "SOCKS5": f'{shown} --noproxy "" --proxy "$ALL_PROXY" {plain}',
        "HTTP": f'{shown} --noproxy "" --proxy "$HTTP_PROXY" {plain}',
        "CONNECT": f'{shown} --noproxy "" --proxy "$HTTPS_PROXY" --proxytunnel {plain}',
    }


def _exec(stage: HostedStage, container: ContainerStatus, script: str) -> str:
    """Run a script in a container, with its environment."""
    tasks = {pid: id_ for id_, pid in containerd.task_pids(stage.lab, POD_NODE).items()}
    assert container.pid is not None
    id_ = tasks[container.pid]
    return (
        containerd.ctr(stage.lab, POD_NODE, "tasks", "exec", "--exec-id", "look", id_, "sh", "-c", script).check().text
    )


def _show_memory(stage: HostedStage) -> None:
    with stage.transcript.step("memory of the containers of our image"):
        for node, pod, container in (
            (BOOTSTRAP, SERVER_POD, names.SERVER),
            (stage.topology.members[0].name, names.AGENT, names.AGENT),
            (POD_NODE, AGENT_POD, names.AGENT),
            *((POD_NODE, COMPONENT, one.name) for one in _running(stage, POD_NODE, COMPONENT).containers[1:]),
        ):
            pid = next(one.pid for one in _running(stage, node, pod).containers if one.name == container)
            text = stage.lab.exec(node, ["cat", f"/proc/{pid}/smaps_rollup"]).check().text
            mib = {kind: int(kib) / 1024 for kind, kib in _MEMORY.findall(text)}
            stage.transcript.saw(f"{container} in {pod} on {node}: {mib['Pss']:.1f} MiB (PSS), {mib['Rss']:.1f} (RSS)")


def end(testbed: Testbed) -> None:
    """Show that the hook works which keeps the server: kube-apiserver still calls webhooks while it ends."""
    lab, transcript = testbed.lab, testbed.transcript
    with transcript.step("the pod ends: kube-apiserver has its server to the last"):
        pod = testbed.find_pod(BOOTSTRAP, SERVER_POD)
        assert pod is not None
        pids = {one.name: one.pid for one in pod.containers}

        def look(name: str) -> None:
            if pids[name] in containerd.task_pids(lab, BOOTSTRAP).values():
                raise NotYet(f"{name} still runs")

        lab.remove(BOOTSTRAP, KUBE_APISERVER_POD)
        began = time.monotonic()
        testbed.wait("kube-apiserver to end", lambda: look(names.KUBE_APISERVER), END_SECONDS)
        if pids[names.SERVER] not in containerd.task_pids(lab, BOOTSTRAP).values():
            raise complaint("the server ended before kube-apiserver", "its preStop hook should have kept it")
        transcript.saw(f"kube-apiserver ended after {time.monotonic() - began:.0f} s, its server still runs")
        testbed.wait("the server to end", lambda: look(names.SERVER), END_SECONDS)
        transcript.saw(f"the server ended after {time.monotonic() - began:.0f} s")
        transcript.shows(server=False, apiserver=False, call=CallResult.NONE)


def _running(stage: HostedStage, node: str, name: str) -> PodStatus:
    """Wait until every container of a pod is ready."""

    def look() -> PodStatus:
        pod = stage.testbed.find_pod(node, name)
        if pod is None:
            raise NotYet("the pod does not exist")
        late = [one.name for one in pod.containers if not one.is_ready]
        if late or not pod.containers:
            log = stage.testbed.runner.logs(stage.lab, node, name, late[0]).strip() if late else ""
            raise NotYet(f"not ready: {', '.join(late)}; last log line: {log.rpartition(chr(10))[2] or 'none'}")
        return pod

    return stage.wait(f"the pod {name} on {node}", look, READY_SECONDS)


def _saw_container(stage: HostedStage, pod: PodStatus, name: str) -> None:
    container = next(one for one in pod.containers if one.name == name)
    if container.restarts:
        raise complaint(f"{name} in {pod.name} on {pod.node} was restarted", f"{container.restarts} times")
    stage.transcript.saw(f"{name} in {pod.name} on {pod.node} runs {container.image}")


SCENARIOS: Final = (
    Scenario(
        "hosted-pods",
        "the rendered pods of a hosted control plane: server, both proxies and agents, from the image",
        run,
        end,
        runners=(RunnerKind.KUBELET,),
        plan=pods.topology,
        needs_image=True,
    ),
)
