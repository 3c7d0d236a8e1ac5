"""The three functions as bootkube.sh calls them: stages, files, restarts after a kill anywhere, and the cleanup."""

import base64
import ipaddress
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
import yaml
from tests.bootstrap.shell.conftest import Machine, caller
from tests.support.scratch_node import IMAGE, ScratchNode

from umbilical.bootstrap.certificates import fingerprint
from umbilical.bootstrap.names import AGENT_NAME, AGENT_SECRET, OWN, STAGES, STATIC_POD
from umbilical.bootstrap.render.render import Certificates
from umbilical.bootstrap.spec import Shape, for_shape
from umbilical.pki.authority import Authority
from umbilical.pki.certificate import read_certificates
from umbilical.pki.profiles import KeyType, client_profile, server_profile

pytestmark = [pytest.mark.root, pytest.mark.real("ip", "jq", "openssl")]
ADDRESS: Final = "10.0.0.5"
MANIFESTS: Final = "/opt/openshift/manifests"
SOCKET: Final = "/etc/kubernetes/bootstrap-configs/konnectivity-server.socket"
# Not a word of the grammar, a comment, a heredoc's body, or the rest of a command that began a line before.
COMMAND: Final = re.compile(r" +(?!(?:local|fi|else|done|while|\(|\)|#|umask|sed|EOF|&&)\b|[()#&-])\S")
BIRTH: Final = (OWN.setup_function, OWN.manifests_function)


@pytest.fixture
def placed(machine: Machine) -> Machine:
    machine.nic(f"{ADDRESS}/24", "10.0.0.1/24")
    return machine


def loaded(node: ScratchNode, path: str) -> dict[str, Any]:
    value = yaml.safe_load(node.read(path))
    assert isinstance(value, dict)
    return value


def flag(container: dict[str, Any], name: str) -> str:
    values = [word.partition("=")[2] for word in container["args"] if word.startswith(f"--{name}=")]
    assert len(values) == 1
    return str(values[0])


def assert_born(node: ScratchNode) -> None:
    """The end state of the first two functions, whatever happened on the way."""
    pki = node.path(OWN.pki_directory)
    pod = loaded(node, STATIC_POD)
    assert pod["spec"]["containers"][0]["image"] == IMAGE
    assert list(pod["metadata"]["annotations"].values()) == [fingerprint((pki / "server/tls.crt").read_bytes())]
    secret = loaded(node, f"{MANIFESTS}/konnectivity-agent-certs.yaml")
    for key in ("tls.crt", "tls.key", "ca.crt"):
        assert base64.b64decode(secret["data"][key]) == (pki / "agent" / key).read_bytes()
    agent = loaded(node, f"{MANIFESTS}/konnectivity-agent-daemonset.yaml")["spec"]["template"]["spec"]["containers"][0]
    assert agent["image"] == IMAGE
    assert flag(agent, "proxy-server-host") == ADDRESS
    assert_no_placeholder(node)


def assert_no_placeholder(node: ScratchNode) -> None:
    """What the kubelet and cluster-bootstrap can see is whole at any time."""
    for folder in ("/etc/kubernetes/manifests", MANIFESTS):
        for path in node.path(folder).glob("[!.]*"):
            assert "${" not in path.read_text()
            assert isinstance(yaml.safe_load(path.read_bytes()), dict)


def assert_killed_in(node: ScratchNode, *functions: str) -> None:
    """Every line of a function that can run in this test was the last one once, `local` and braces apart."""
    lines = node.read(OWN.library).splitlines()
    killed = {int(place.split(":")[1]) for place in node.killed_at() if place.startswith(OWN.library)}
    for function in functions:
        begin = lines.index(f"{function}() {{")
        end = lines.index("}", begin)
        commands = [number for number in range(begin + 2, end + 1) if COMMAND.match(lines[number - 1])]
        assert commands
        assert [lines[number - 1] for number in commands if number not in killed] == []


def done(node: ScratchNode) -> list[str]:
    return sorted(path.stem for path in node.path("/opt/openshift").glob("*.done"))


def test_the_stages_come_in_order_and_one_after_the_other(placed: Machine) -> None:
    placed.prepare()
    assert placed.call(*BIRTH, OWN.cleanup_function).exit_code == 0
    expected = [f"{word} {stage}" for stage in STAGES for word in ("stage-start", "stage-success")]
    assert placed.node.calls("stage-start", "stage-success", "stage-failure") == expected
    assert done(placed.node) == sorted(STAGES)


def test_everything_is_filled_and_agrees(placed: Machine) -> None:
    placed.prepare()
    ended = placed.call(*BIRTH)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert_born(placed.node)
    modes = [path.stat().st_mode & 0o777 for path in placed.node.path(MANIFESTS).iterdir()]
    assert modes == [0o600] * 3


def test_the_journal_gets_the_address_with_its_origin_and_the_certificates_with_their_end(placed: Machine) -> None:
    placed.prepare()
    address, certificates = placed.call(*BIRTH).stdout.splitlines()
    assert address == f"Detected bootstrap node IP: {ADDRESS} (the only IPv4 address in 0.0.0.0/0)"
    server = placed.node.path(OWN.pki_directory) / "server/tls.crt"
    (certificate,) = read_certificates(server.read_bytes())
    until = f"{certificate.not_after:%b} {certificate.not_after.day:2} {certificate.not_after:%H:%M:%S %Y} GMT"
    wanted = f"Generated Konnectivity certificates in {OWN.pki_directory} for {ADDRESS}, valid until {until}"
    assert certificates == wanted
    assert placed.call(*BIRTH).stdout == ""


def test_killed_before_any_command_and_restarted_it_comes_to_the_same_end(placed: Machine) -> None:
    placed.prepare()
    for ended in placed.node.run_killed_everywhere(caller(*BIRTH)):
        assert ended.exit_code in (-9, 0), ended.stderr
        assert_no_placeholder(placed.node)
    assert ended.exit_code == 0, ended.stderr
    assert_killed_in(placed.node, *BIRTH, "_umbilical_fill", "_umbilical_write_address")
    assert_born(placed.node)
    assert done(placed.node) == sorted(STAGES[:3])
    leftovers = [path.name for path in placed.node.path("/etc/kubernetes/manifests").iterdir()]
    assert leftovers == ["konnectivity-server-pod.yaml"]


def test_a_stage_that_failed_is_tried_again_from_its_beginning(placed: Machine) -> None:
    placed.prepare()
    placed.node.lack_image("apiserver-network-proxy")
    ended = placed.call(*BIRTH)
    assert ended.exit_code != 0
    assert placed.node.calls("stage-failure") == ["stage-failure konnectivity-server-bootstrap"]
    assert not placed.node.path(STATIC_POD).exists()
    placed.node.lack_image("apiserver-network-proxy", missing=False)
    assert placed.call(*BIRTH).exit_code == 0
    assert_born(placed.node)


def test_an_empty_answer_for_the_image_is_no_image(placed: Machine) -> None:
    placed.prepare()
    placed.node.write("/usr/local/bin/release-image.sh", "image_for() { :; }\n", 0o555)
    ended = placed.call(*BIRTH)
    assert ended.exit_code != 0
    assert ended.stderr.startswith("UMB116 ")
    assert len(ended.stderr.splitlines()) == 3
    assert not placed.node.path(STATIC_POD).exists()


def test_a_fixed_image_is_not_asked_for(placed: Machine) -> None:
    placed.prepare(for_shape(Shape.OPENSHIFT, image="registry.example/own:1"))
    assert placed.call(*BIRTH).exit_code == 0
    assert placed.node.calls("image_for") == []
    assert loaded(placed.node, STATIC_POD)["spec"]["containers"][0]["image"] == "registry.example/own:1"


def test_given_certificates_are_used_as_they_are(machine: Machine) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = Authority.create("ca", now, day, KeyType.ECDSA_P256)
    given = Certificates(
        authority.certificate_pem,
        authority.issue(server_profile("server", [ADDRESS], KeyType.ECDSA_P256), now, day),
        authority.issue(client_profile("agent", key_type=KeyType.ECDSA_P256), now, day),
    )
    machine.prepare(for_shape(Shape.OPENSHIFT, node_ip=ipaddress.ip_address(ADDRESS)), given)
    assert machine.call(*BIRTH).exit_code == 0
    assert not machine.node.path(OWN.certificate_script).exists()
    data = loaded(machine.node, f"{MANIFESTS}/konnectivity-agent-certs.yaml")["data"]
    assert base64.b64decode(data["tls.key"]) == given.agent.key
    annotations = loaded(machine.node, STATIC_POD)["metadata"]["annotations"]
    assert list(annotations.values()) == [given.server_fingerprint]


def test_no_key_is_ever_an_argument_of_a_program(placed: Machine) -> None:
    """Every program of the library is wrapped by one that notes its arguments."""
    placed.prepare()
    for program in ("sed", "base64", "cat", "mv", "sha256sum"):
        wrapper = f'#!/bin/bash\necho "{program} $*" >>/var/log/arguments\nexec /usr/bin/{program} "$@"\n'
        placed.node.write(f"/usr/local/bin/{program}", wrapper, 0o555)
    assert placed.call(*BIRTH).exit_code == 0
    key = base64.b64encode(placed.node.path(f"{OWN.pki_directory}/agent/tls.key").read_bytes()).decode()
    noted = placed.node.read("/var/log/arguments")
    assert "sed --file=-" in noted
    assert key not in noted


def test_cleanup_asks_for_the_namespace_and_does_not_wait(placed: Machine) -> None:
    placed.prepare()
    assert placed.call(*BIRTH, OWN.cleanup_function).exit_code == 0
    (asked,) = placed.node.calls("oc")
    assert asked.startswith("oc delete namespace openshift-bootstrap-konnectivity ")
    for word in ("--kubeconfig=/opt/openshift/auth/kubeconfig", "--ignore-not-found=true", "--wait=false"):
        assert word in asked.split()


def test_cleanup_in_a_shared_namespace_names_its_objects(placed: Machine) -> None:
    placed.prepare(for_shape(Shape.SEED))
    assert placed.call(*BIRTH, OWN.cleanup_function).exit_code == 0
    agents, secret = placed.node.calls("oc")
    assert agents.startswith(f"oc delete daemonset {AGENT_NAME} --namespace=kube-system ")
    assert secret.startswith(f"oc delete secret {AGENT_SECRET} --namespace=kube-system ")
    assert not placed.node.path(f"{MANIFESTS}/konnectivity-namespace.yaml").exists()


def test_cleanup_removes_pod_socket_and_keys(placed: Machine) -> None:
    placed.prepare()
    assert placed.call(*BIRTH).exit_code == 0
    placed.node.write(SOCKET, "")
    assert placed.call(OWN.cleanup_function).exit_code == 0
    for path in (STATIC_POD, SOCKET, OWN.pki_directory):
        assert not placed.node.path(path).exists()


def test_cleanup_killed_anywhere_comes_to_the_same_end_and_makes_nothing_anew(placed: Machine) -> None:
    placed.prepare()
    assert placed.call(*BIRTH).exit_code == 0
    placed.node.write(SOCKET, "")
    *_, ended = placed.node.run_killed_everywhere(caller(*BIRTH, OWN.cleanup_function))
    assert ended.exit_code == 0, ended.stderr
    assert "rm--rf--opt-openshift-umbilical-pki" in "\n".join(placed.node.killed_at())
    for path in (STATIC_POD, SOCKET, OWN.pki_directory):
        assert not placed.node.path(path).exists()
    assert done(placed.node) == sorted(STAGES)
    placed.node.forget_calls()
    assert placed.call(*BIRTH, OWN.cleanup_function).exit_code == 0
    assert placed.node.calls("stage-start", "oc") == []
    assert not placed.node.path(STATIC_POD).exists()


def test_an_api_that_does_not_answer_holds_the_installation_up_for_a_bounded_time(placed: Machine) -> None:
    placed.prepare()
    placed.node.fail("oc")
    placed.node.write("/usr/local/bin/sleep", "#!/bin/sh\n", 0o555)
    ended = placed.call(*BIRTH, OWN.cleanup_function, "echo went-on")
    assert ended.exit_code == 0
    assert ended.stdout.splitlines()[2:] == ["went-on"]
    assert len(placed.node.calls("oc")) == 5
    assert placed.node.calls("stage-failure") == ["stage-failure konnectivity-cleanup"]
    assert "umbilical bootstrap teardown" in ended.stderr
    assert not placed.node.path(OWN.pki_directory).exists()
    placed.node.fail("oc", broken=False)
    assert placed.call(*BIRTH, OWN.cleanup_function).exit_code == 0
    assert "konnectivity-cleanup" in done(placed.node)
