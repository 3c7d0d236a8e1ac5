"""What an administrator does with a pod: logs, exec, attach, port-forward, each a connection to a kubelet.

Kubelets listen on the machine network, which the bootstrap node is part of; so its direct way to them is closed
first, as a firewall would, and everything that gets there has come through the tunnel.
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
"""exec, attach and port-forward: each takes a connection for itself."""
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
    """Bring up everything but the tunnel; return the node that the scheduler chose for the pod."""
    transcript = testbed.transcript
    with transcript.step("control plane on the bootstrap node, under a kubelet that knows no API"):
        testbed.start_control_plane()
        transcript.shows(nodes=tuple(node.name for node in testbed.lab.topology.nodes), apiserver=True)
    with transcript.step(f"{len(testbed.members)} kubelets register"):
        testbed.start_nodes()
    with transcript.step("a pod that talks"):
        testbed.apply(objects.namespace(), objects.service_account(), pod())
        node = testbed.wait("the pod to run", lambda: _look_at_pod(testbed), SECONDS)
        transcript.saw(f"the scheduler chose {node}")
    return node


def show_need(testbed: "KubernetesTestbed", node: str) -> None:
    with testbed.transcript.step("the direct way to kubelets is closed: no logs"):
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
    with transcript.step("the server counts them among its tunnels"):
        lines = testbed.wait("the server's lines", lambda: _look_at_tunnels(testbed), SECONDS)
        transcript.figures["tunnels to kubelets"] = str(len(lines))
        for line in lines:
            transcript.saw(line)


def pod() -> dict[str, Any]:
    """Two containers: one prints and serves, one answers whoever attaches, until they leave."""
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
    phase = shown.get("status", {}).get("phase", "of no phase")
    if phase != "Running":
        raise NotYet(f"it is {phase}")
    return str(shown["spec"]["nodeName"])


def _look_at_log(testbed: "KubernetesTestbed") -> str:
    done = _kubectl(testbed, "logs", POD, "-c", POD)
    if f"{POD} talks" not in done.text:
        raise NotYet(_last_line(done.stderr) or "it is empty")
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
    """One line when a tunnel ends: three of them at least. That of `logs` may live on, since its connection is kept."""
    log = testbed.runner.logs(testbed.lab, BOOTSTRAP, SERVER_NAME, SERVER_NAME)
    lines = _TUNNEL_LINE.findall(log)
    if len(lines) < STREAMING:
        raise NotYet(f"there are {len(lines)}")
    return lines


def _answer(done: "CompletedCommand", wanted: str) -> str:
    if wanted not in done.check().text:
        raise _unexpected(f"an answer with {wanted!r}", done)
    return _last_line(done.stdout)


def _refusal(done: "CompletedCommand") -> str:
    if done.exit_code == 0:
        raise _unexpected("a refusal", done)
    return _last_line(done.stderr)


def _unexpected(wanted: str, done: "CompletedCommand") -> LabError:
    why = f"it exited with {done.exit_code} and said: {_last_line(done.stdout) or _last_line(done.stderr)}"
    remedy = "look at the logs in the lab's directory, of kube-apiserver and of the server"
    return LabError("UMB848", f"kubectl did not bring {wanted}", why, remedy)


def _last_line(content: bytes) -> str:
    lines = content.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


SCENARIOS: Final = (
    Scenario(
        NAME,
        "logs, exec, attach and port-forward reach kubelets through the tunnel alone",
        run,
        runners=(RunnerKind.KUBELET,),
        masters=1,
        workers=2,
    ),
)
