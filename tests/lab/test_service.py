"""The lab's service: what it answers, and how it serves over real sockets and TLS."""

import argparse
import copy
import http.client
import json
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.commands import modules_loaded
from tests.support.labs import wait_until

from umbilical.host.files import write_file
from umbilical.host.processes import start
from umbilical.lab.admission_review import review_of, verdict_of
from umbilical.lab.objects import judged, letter, make_service
from umbilical.lab.service_answers import CONVERTED_BY, GREETED, BadQuestion, api_resource, convert, review
from umbilical.lab.service_program import LabService, main, parse_arguments, parse_listen
from umbilical.lab.service_program import make_service as make_program
from umbilical.lab.topology import plan_topology

WORDS = ("apiVersion", "kind", "request", "uid", "objects", "desiredAPIVersion", "object", "metadata")
KEYS = st.sampled_from(WORDS) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def _conversion(*objects: object, to: str) -> dict[str, Any]:
    request = {"uid": "7", "desiredAPIVersion": f"post.umbilical.dev/{to}", "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def _v2(name: str, **spec: str) -> dict[str, Any]:
    return {**letter(name, ""), "apiVersion": "post.umbilical.dev/v2", "spec": spec}


def test_the_label_decides() -> None:
    for verdict, expected in (("allow", (True, "")), ("deny", (False, "the webhook in the cluster says no: worker-0"))):
        assert verdict_of(_encoded(review(review_of(judged(verdict), "42"), "worker-0")), "42") == expected


def test_an_object_without_labels_is_allowed_and_so_is_a_deletion() -> None:
    question = review_of({"kind": "ConfigMap", "metadata": {"name": "a"}}, "1")
    assert review(question, "n")["response"] == {"uid": "1", "allowed": True}
    question["request"]["object"] = None
    assert review(question, "n")["response"]["allowed"] is True


def test_a_letter_is_one_text_in_v1_and_two_fields_in_v2() -> None:
    response = convert(_conversion(letter("a", "hello, world"), to="v2"), "worker-0")["response"]
    assert response["uid"] == "7"
    assert response["result"] == {"status": "Success"}
    [converted] = response["convertedObjects"]
    assert converted["apiVersion"] == "post.umbilical.dev/v2"
    assert converted["spec"] == {"greeting": "hello", "name": "world"}


def test_only_annotations_of_the_metadata_change() -> None:
    original = letter("a", "hello, world")
    original["metadata"] |= {"uid": "u", "resourceVersion": "9", "annotations": {"mine": "kept"}}
    before = copy.deepcopy(original)
    [converted] = convert(_conversion(original, to="v2"), "worker-0")["response"]["convertedObjects"]
    assert original == before
    assert converted["metadata"].pop("annotations") == {"mine": "kept", CONVERTED_BY: "worker-0"}
    before["metadata"].pop("annotations")
    assert converted["metadata"] == before["metadata"]


@given(st.text())
def test_nothing_is_lost_on_the_way_there_and_back(text: str) -> None:
    [there] = convert(_conversion(letter("a", text), to="v2"), "n")["response"]["convertedObjects"]
    [back] = convert(_conversion(there, to="v1"), "n")["response"]["convertedObjects"]
    assert back["spec"] == {"text": text}


def test_what_has_no_rule_fails_by_name() -> None:
    for wanted, to, why in (
        (letter("a", "b"), "v3", "to post.umbilical.dev/v3"),
        ({"apiVersion": "v1", "metadata": {}}, "v1", "no rule from v1"),
        ({"apiVersion": "post.umbilical.dev/v1"}, "v2", "without metadata"),
    ):
        response = convert(_conversion(_v2("ok", greeting="a"), wanted, to=to), "n")["response"]
        assert response["result"]["status"] == "Failure"
        assert why in response["result"]["message"]
        assert "convertedObjects" not in response


@given(JSON)
def test_nonsense_is_refused_in_one_way(body: object) -> None:
    for answer in (review, convert):
        with pytest.raises(BadQuestion):
            answer(body, "n")


@given(JSON)
def test_a_question_with_a_number_is_answered_whatever_is_in_it(inner: object) -> None:
    for kind, version, answer in (
        ("AdmissionReview", "admission.k8s.io/v1", review),
        ("ConversionReview", "apiextensions.k8s.io/v1", convert),
    ):
        request = {"uid": "7", "object": inner, "objects": [inner], "desiredAPIVersion": "post.umbilical.dev/v2"}
        result = answer({"apiVersion": version, "kind": kind, "request": request}, "n")
        assert result["response"]["uid"] == "7"


def test_discovery_leads_to_the_greetings_and_elsewhere_is_nothing() -> None:
    def ask(path: str) -> dict[str, Any]:
        found = api_resource(path, "worker-0", "admin")
        assert found is not None
        return found

    group = ask("/apis")["groups"][0]
    assert group == ask(f"/apis/{group['name']}")
    place = f"/apis/{group['preferredVersion']['groupVersion']}"
    [resource] = ask(place)["resources"]
    listed = ask(f"{place}/{resource['name']}")
    assert [one["metadata"]["name"] for one in listed["items"]] == list(GREETED)
    one = ask(f"{place}/{resource['name']}/moon")
    assert one["kind"] == resource["kind"]
    assert (one["text"], one["askedBy"]) == ("hello moon, says worker-0", "admin")
    for path in ("/", "/openapi/v2", "/apis/other", "/apis/lab.umbilical.dev/v1/greetings/a/b"):
        assert api_resource(path, "n", "u") is None


def test_kubectl_gets_a_table_when_it_asks_for_one() -> None:
    for name, rows in (("", len(GREETED)), ("/moon", 1)):
        found = api_resource(f"/apis/lab.umbilical.dev/v1/greetings{name}", "worker-0", "admin", TABLE)
        assert found is not None
        assert found["kind"] == "Table"
        assert len(found["rows"]) == rows
        assert {len(row["cells"]) for row in found["rows"]} == {len(found["columnDefinitions"])}


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


SERVER_NAME = "lab-service.lab.svc"


class Place:
    def __init__(self, folder: Path) -> None:
        service = make_service(plan_topology(), datetime.now(UTC))
        self.certificate = write_file(folder / "tls.crt", service.pair.certificate)
        self.key = write_file(folder / "tls.key", service.pair.key)
        self.context = ssl.create_default_context(cadata=service.authority.decode())
        # What it is known by is a name of the cluster's; here it is dialled by its address.
        self.context.check_hostname = False

    def flags(self, listen: str) -> list[str]:
        files = [f"--certificate={self.certificate}", f"--key={self.key}"]
        return [f"--listen={listen}", *files, "--node-name=worker-7"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("service"))


@contextmanager
def serving(*flags: str) -> Iterator[LabService]:
    service = make_program(parse_arguments(list(flags)))
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        service.shutdown()
        service.server_close()
        thread.join(10)


@pytest.fixture
def running(place: Place) -> Iterator[LabService]:
    with serving(*place.flags("127.0.0.1:0")) as service:
        yield service


@pytest.fixture
def connection(place: Place, running: LabService) -> Iterator[http.client.HTTPSConnection]:
    opened = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=20, context=place.context)
    with closing(opened):
        yield opened


def _ask(
    connection: http.client.HTTPSConnection, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, bytes]:
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, content, headers)
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def test_calls_over_one_connection_are_answered_and_counted(connection: http.client.HTTPSConnection) -> None:
    for verdict, allowed in (("allow", True), ("deny", False)):
        status, body = _ask(connection, "POST", "/validate?timeout=5s", review_of(judged(verdict), "1"))
        assert status == 200
        assert verdict_of(body, "1")[0] is allowed
    assert _ask(connection, "GET", "/healthz") == (200, b"ok")
    assert json.loads(_ask(connection, "GET", "/calls")[1]) == {"/validate": 2}
    path = "/apis/lab.umbilical.dev/v1/greetings/moon"
    status, body = _ask(connection, "GET", path, **{"X-Remote-User": "system:admin"})
    assert status == 200
    found: dict[str, Any] = json.loads(body)
    assert (found["text"], found["askedBy"]) == ("hello moon, says worker-7", "system:admin")


def test_a_connection_ends_with_its_first_answer_where_that_is_wanted(place: Place) -> None:
    with (
        serving(*place.flags("127.0.0.1:0"), "--close-connections") as service,
        closing(http.client.HTTPSConnection("127.0.0.1", service.port, context=place.context, timeout=30)) as once,
    ):
        once.request("GET", "/healthz")
        answer = once.getresponse()
        assert (answer.read(), answer.getheader("Connection"), answer.will_close) == (b"ok", "close", True)


@pytest.fixture
def plain() -> Iterator[LabService]:
    with serving("--plain", "--listen=127.0.0.1:0", "--node-name=worker-7") as service:
        yield service


def _plainly(service: LabService) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)


def test_without_tls_it_answers_the_same_and_ticks_until_the_client_goes(plain: LabService) -> None:
    with closing(_plainly(plain)) as opened:
        opened.request("GET", "/healthz")
        assert opened.getresponse().read() == b"ok"
    with closing(_plainly(plain)) as opened:
        opened.request("GET", "/ticks")
        answer = opened.getresponse()
        assert [answer.readline() for _ in range(3)] == [b"tick\n"] * 3


def test_what_is_never_answered_is_counted_and_stops_nobody(plain: LabService) -> None:
    with socket.create_connection(("127.0.0.1", plain.port), 60) as waiting, closing(_plainly(plain)) as other:
        waiting.sendall(b"GET /never HTTP/1.1\r\nHost: here\r\n\r\n")
        wait_until(lambda: plain.calls["/never"] == 1)
        other.request("GET", "/healthz")
        assert other.getresponse().read() == b"ok"
        waiting.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)


def test_nonsense_is_refused_and_the_service_goes_on(connection: http.client.HTTPSConnection) -> None:
    for method, path, body, status in (
        ("GET", "/nothing", None, 404),
        ("POST", "/nothing", b"{}", 404),
        ("POST", "/validate", b"{", 400),
        ("POST", "/validate", b"\xff\xfe", 400),
        ("POST", "/validate", b"[" * 100_000, 400),
        ("POST", "/convert", b"{}", 400),
        ("DELETE", "/validate", None, 501),
    ):
        assert _ask(connection, method, path, body)[0] == status
        assert _ask(connection, "GET", "/healthz")[0] == 200


@pytest.mark.parametrize("length", ["-5", "many", str(1 << 40)])
def test_a_body_of_unusable_length_is_not_read(connection: http.client.HTTPSConnection, length: str) -> None:
    connection.putrequest("POST", "/validate")
    connection.putheader("Content-Length", length)
    connection.endheaders()
    with connection.getresponse() as answer:
        assert answer.status == 400


def test_a_client_without_tls_stops_nobody(running: LabService, connection: http.client.HTTPSConnection) -> None:
    with socket.create_connection(("127.0.0.1", running.port), 10) as silent:
        silent.sendall(b"hello")
        assert _ask(connection, "GET", "/healthz") == (200, b"ok")


def test_without_an_address_it_listens_on_both_families(place: Place) -> None:
    service = make_program(parse_arguments(place.flags(":0")))
    try:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, service.port), 10).close()
    finally:
        service.server_close()


def test_where_to_listen_and_without_a_pair_it_must_be_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_listen(":8443") == ("", 8443)
    assert parse_listen("10.0.0.1:1") == ("10.0.0.1", 1)
    assert parse_listen("[fd91::1]:443") == ("fd91::1", 443)
    for text in ("8443", "", "a:", "a:b", ":70000", ":-1"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_listen(text)
    with pytest.raises(SystemExit):
        parse_arguments(["--node-name=worker-7"])
    assert "give --certificate and --key, or --plain" in capsys.readouterr().err


def test_a_missing_key_is_told_in_three_lines(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        code = main(["--listen=127.0.0.1:0", f"--certificate={place.certificate}", "--key=/nowhere", "--node-name=n"])
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert code == 4
    assert capfd.readouterr().err.startswith("UMB880 the lab's service did not start\n  why: No such file")


def test_it_says_when_it_is_ready_and_leaves_when_asked(place: Place, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "umbilical.lab.service_program", *place.flags("127.0.0.1:0")]
    with start(command, tmp_path / "log") as child:
        child.wait_ready(lambda: "ready on port" in child.log_text(), 30)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def test_it_loads_little() -> None:
    loaded = modules_loaded("import umbilical.lab.service_program")
    assert not {"cryptography", "yaml", "click", "lightkube", "pyroute2"} & loaded
