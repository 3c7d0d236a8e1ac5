"""What the doctor says, and by what it knows a failure."""

from umbilical.hardway.doctor.diagnosis import Diagnosis, hinted, lesson_live, lesson_of
from umbilical.hardway.waiting import Signature


def test_a_diagnosis_is_three_lines_and_names_what_it_is_known_as() -> None:
    told = str(
        Diagnosis("HA-01", "artifacts of stage 02", "not so", "plain HTTP", "umbilical stage retry 2", "httpchk")
    )
    assert told == (
        "HA-01 artifacts of stage 02: not so\n"
        "  why: plain HTTP\n"
        "  next: umbilical stage retry 2 (known as httpchk: umbilical explain httpchk)"
    )


def test_a_lesson_is_known_by_rule_and_words_together() -> None:
    assert lesson_of("PKI-01", "tls/etcd-serving-bootstrap.crt lacks clientAuth") == "etcd-serving"
    assert lesson_of("PKI-01", "tls/etcd-peer-master-0.crt lacks serverAuth") == ""
    assert lesson_of("PKI-03", "tls/etcd-serving-bootstrap.crt lacks clientAuth") == ""


def test_a_live_lesson_is_known_by_what_machines_say() -> None:
    assert lesson_live("its check says L7RSP") == "httpchk"
    assert lesson_live("its check says L7STS, and it is ready when it is asked over TLS") == "httpchk"
    assert lesson_live("its check says L7STS") == ""
    assert lesson_live("kube-proxy.yaml is not in /etc/kubernetes/manifests of worker-0") == "no-proxy"
    assert lesson_live("L7OK") == ""


def test_a_known_failure_brings_its_hint_before_the_usual_remedy() -> None:
    known = [Signature("refused", "nothing listens yet")]
    assert hinted("connection refused", "try again", known) == "nothing listens yet; then try again"
    assert hinted("x509", "try again", known) == "try again"
