"""kubectl logs, exec, attach and port-forward: each is a connection from kube-apiserver to a kubelet.

The bootstrap node is in the kubelets' network, so a packet filter rule rejects its direct connections to them first.
"""

import json
import re
from typing import TYPE_CHECKING, Any, Final

from umbilical.bootstrap.names import SERVER_NAME
from umbilical.fault import LabError
from umbilical.host.waiting import NotYet
from umbilical.lab import objects
from umbilical.lab.control_plane import ADMIN_KUBECONFIG
from umbilical.lab.images import UMBILICAL
from umbilical.lab.scenarios.scenario import Scenario
from umbilical.lab.scenarios.webhook_through_tunnel import set_up_tunnel
from umbilical.lab.state import RunnerKind
from umbilical.lab.testbed import BOOTSTRAP, Testbed
from umbilical.manifests.static_pod import UNPRIVILEGED

if TYPE_CHECKING:
    from umbilical.lab.kubernetes_testbed import KubernetesTestbed
    from umbilical.lab.lab import CompletedCommand

NAME: Final = "kubelet-traffic"
POD: Final = "talker"
ECHO: Final = "echo"
KUBELET_PORT: Final = 10250
PAGE_PORT: Final = 8080
LOCAL_PORT: Final = 18080
FORWARD: Final = "port-forward"
FIREWALL: Final = "kubelets"
SECONDS: Final = 60.0
STREAMING: Final = 3
"""exec, attach and port-forward have a connection each."""
_TALK: Final = """
import http.server, socket
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"a page from {socket.gethostname()}\\n".encode())
print(f"{socket.gethostname()} talks", flush=True)
http.server.ThreadingHTTPServer(("", PORT), Page).serve_forever()
""".replace("PORT", str(PAGE_PORT))
_ANSWER: Final = "import sys\nfor line in sys.stdin: print('heard:', line.strip(), flush=True)"
_SAY: Final = "import os, socket; print(f'run as {os.getuid()} in {socket.gethostname()}')"
_TUNNEL_LINE: Final = re.compile(rf"tunnel dial=.* target=\S+:{KUBELET_PORT} .*")


def run(testbed: Testbed) -> None:
    from umbilical.lab.kubernetes_testbed import KubernetesTestbed

    assert isinstance(testbed, KubernetesTestbed)
    node = prepare(testbed)
    show_need(testbed, node)
    set_up_tunnel(testbed)
    show_traffic(testbed)


def prepare(testbed: "KubernetesTestbed") -> str:
    """Start everything but the tunnel; return the pod's node."""
    transcript = testbed.transcript
    with transcript.step("control plane on the bootstrap node, under a standalone kubelet"):
        testbed.start_control_plane()
        transcript.shows(nodes=tuple(node.name for node in testbed.lab.topology.nodes), apiserver=True)
    with transcript.step(f"{len(testbed.members)} kubelets register"):
        testbed.start_nodes()
    with transcript.step("a pod that prints and serves a page"):
        testbed.apply(objects.namespace(), objects.service_account(), pod())
        node = testbed.wait("the pod to run", lambda: _look_at_pod(testbed), SECONDS)
        transcript.saw(f"the scheduler chose {node}")
    return node


def show_need(testbed: "KubernetesTestbed", node: str) -> None:
    with testbed.transcript.step("kubelets are not reachable directly: kubectl logs fails"):
        testbed.lab.add_rules(BOOTSTRAP, FIREWALL, firewall())
        testbed.transcript.saw(f"the pod's kubelet: {testbed.lab.topology.node(node).address}:{KUBELET_PORT}")
        testbed.transcript.saw(_refusal(_kubectl(testbed, "logs", POD, "-c", POD)))


def show_traffic(testbed: "KubernetesTestbed") -> None:
    transcript = testbed.transcript
    with transcript.step("kubectl logs"):
        transcript.saw(testbed.wait("the pod's log", lambda: _look_at_log(testbed), SECONDS))
    with transcript.step("kubectl exec"):
        transcript.saw(
            _answer(_kubectl(testbed, "exec", POD, "-c", POD, "--", "python3", "-I", "-c", _SAY), f"in {POD}")
        )
    with transcript.step("kubectl attach"):
        words = b"are you there?\n"
        transcript.saw(
            _answer(_kubectl(testbed, "attach", "-i", "-q", POD, "-c", ECHO, stdin=words), "heard: are you there?")
        )
    with transcript.step("kubectl port-forward"):
        transcript.saw(_forwarded_page(testbed))
    with transcript.step("the server logs these tunnels"):
        lines = testbed.wait("the server's lines", lambda: _look_at_tunnels(testbed), SECONDS)
        transcript.figures["tunnels to kubelets"] = str(len(lines))
        for line in lines:
            transcript.saw(line)


def pod() -> dict[str, Any]:
    """Two containers: one prints and serves a page, one answers on an attached stdin."""
    answering = {**_container(ECHO, _ANSWER), "stdin": True, "stdinOnce": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": objects.NAMESPACE},
        "spec": {
            "serviceAccountName": objects.NAME,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(POD, _TALK), answering],
        },
    }


def firewall() -> str:
    return f"""
    chain output {{
        type filter hook output priority filter; policy accept;
        tcp dport {KUBELET_PORT} reject with tcp reset
    }}
"""


def _container(name: str, program: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": UMBILICAL,
        "imagePullPolicy": "Never",
        "command": ["python3", "-I", "-c", program],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": UNPRIVILEGED,
    }


def _kubectl(testbed: "KubernetesTestbed", *arguments: str, stdin: bytes | None = None) -> "CompletedCommand":
    command = ["kubectl", f"--kubeconfig={ADMIN_KUBECONFIG}", f"--namespace={objects.NAMESPACE}", *arguments]
    return testbed.lab.exec(BOOTSTRAP, command, stdin=stdin)


def _look_at_pod(testbed: "KubernetesTestbed") -> str:
    shown = json.loads(_kubectl(testbed, "get", "pod", POD, "-o=json").check().text)
    phase = shown.get("status", {}).get("phase", "without a phase")
    if phase != "Running":
        raise NotYet(f"it is {phase}")
    return str(shown["spec"]["nodeName"])


def _look_at_log(testbed: "KubernetesTestbed") -> str:
    done = _kubectl(testbed, "logs", POD, "-c", POD)
    if f"{POD} talks" not in done.text:
        raise NotYet(_last_line(done.stderr) or "the log is empty")
    return _last_line(done.stdout)


def _forwarded_page(testbed: "KubernetesTestbed") -> str:
    lab = testbed.lab
    namespace = f"--namespace={objects.NAMESPACE}"
    command = [
        "kubectl",
        f"--kubeconfig={ADMIN_KUBECONFIG}",
        namespace,
        FORWARD,
        f"pod/{POD}",
        f"{LOCAL_PORT}:{PAGE_PORT}",
    ]
    lab.start(BOOTSTRAP, FORWARD, command)

    def look() -> str:
        page = testbed.fetch(BOOTSTRAP, f"http://localhost:{LOCAL_PORT}/")
        if page is None:
            raise NotYet(_last_line(lab.log(BOOTSTRAP, FORWARD).encode()) or "nothing listens yet")
        return page.strip()

    try:
        return testbed.wait("a page through the forwarded port", look, SECONDS)
    finally:
        lab.stop(BOOTSTRAP, FORWARD)


def _look_at_tunnels(testbed: "KubernetesTestbed") -> list[str]:
    """The server logs a tunnel when it ends: three at least, since the connection of `logs` may be kept open."""
    log = testbed.runner.logs(testbed.lab, BOOTSTRAP, SERVER_NAME, SERVER_NAME)
    lines = _TUNNEL_LINE.findall(log)
    if len(lines) < STREAMING:
        raise NotYet(f"{len(lines)} lines")
    return lines


def _answer(done: "CompletedCommand", wanted: str) -> str:
    if wanted not in done.check().text:
        raise _unexpected(f"an answer with {wanted!r}", done)
    return _last_line(done.stdout)


def _refusal(done: "CompletedCommand") -> str:
    if done.exit_code == 0:
        raise _unexpected("an error", done)
    return _last_line(done.stderr)


def _unexpected(wanted: str, done: "CompletedCommand") -> LabError:
    why = f"kubectl exited with {done.exit_code} and printed: {_last_line(done.stdout) or _last_line(done.stderr)}"
    remedy = "read the logs of kube-apiserver and of the server in the lab's directory"
    return LabError("UMB848", f"kubectl did not print {wanted}", why, remedy)


def _last_line(content: bytes) -> str:
    lines = content.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


SCENARIOS: Final = (
    Scenario(
        NAME,
        "kubectl logs, exec, attach and port-forward reach kubelets through the tunnel",
        run,
        runners=(RunnerKind.KUBELET,),
        masters=1,
        workers=2,
    ),
)
