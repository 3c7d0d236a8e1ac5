"""Logs on a node, by program."""

import pytest

from umbilical.fault import HardwayError
from umbilical.hardway.node_logs import log_command, parse_list

LISTED = """\
/var/log/pods/kube-system_etcd-master-0_a1/etcd/1.log
/var/log/units/kubelet.service.log
/var/log/pods/kube-system_etcd-master-0_a1/etcd/0.log
/var/log/units/containerd.log
"""


def test_a_program_has_its_newest_log() -> None:
    assert parse_list(LISTED) == {
        "containerd": "/var/log/units/containerd.log",
        "etcd": "/var/log/pods/kube-system_etcd-master-0_a1/etcd/1.log",
        "kubelet": "/var/log/units/kubelet.service.log",
    }
    assert parse_list("") == {}


def test_a_log_is_a_file_or_in_the_journal() -> None:
    found = {"etcd": "/var/log/pods/a/etcd/0.log"}
    assert log_command("libvirt", found, "etcd", 9, "", follows=True) == ["tail", "-n", "9", "-F", found["etcd"]]
    assert log_command("libvirt", found, "crio", 9, "", follows=False)[3:] == ["--no-pager", "-u", "crio"]


def test_a_program_without_a_log_is_answered_with_those_that_have_one() -> None:
    with pytest.raises(
        HardwayError, match=r"(?s)^UMB771 .*there are logs of etcd\n  next: stage logs --dir d master-0$"
    ):
        log_command(
            "lab", {"etcd": "/var/log/pods/a/etcd/0.log"}, "crio", 9, "stage logs --dir d master-0", follows=True
        )
