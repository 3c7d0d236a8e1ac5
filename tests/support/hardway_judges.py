"""Benches for judges: small clusters whose certificates are valid now, since programs have clocks of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tests.support import hardway
from tests.support.hardway_everything import inputs, rendered
from tests.support.hardway_lint import Sample, Subject, copied

import peers
from umbilical.hardway.config.cluster import Profile
from umbilical.hardway.judges.bench import Bench, on_path, open_bench


@cache
def _current(profile: Profile, masters: int, workers: int) -> Subject:
    now = datetime.now(UTC)
    of = hardway.cluster(profile, masters, workers)
    subject = rendered(inputs(of, now))
    subject.now = now
    return subject


def current(profile: Profile, masters: int = 1, workers: int = 1) -> Subject:
    """A subject of one's own, made once per shape."""
    return copied(_current(profile, masters, workers))


def find(name: str) -> Path | None:
    """Peers from the cache, the rest from PATH."""
    return peers.binary(name) if name in {"etcd", "etcdctl", "kubectl", "ignition-validate"} else on_path(name)


@contextmanager
def bench(subject: Subject) -> Iterator[Bench]:
    with open_bench(subject.facts(), find) as opened:
        yield opened


def after(profile: Profile, sample: Sample) -> Subject:
    """A current tree with one change."""
    subject = current(profile)
    sample(subject)
    return subject
