"""Which image a release has for a tag."""

import json

import pytest
from tests.support.hardway import cluster
from tests.support.hardway_lint import Subject
from tests.support.release_directory import image_references

from umbilical.assets.hardway.lint.facts import Unreadable
from umbilical.assets.hardway.lint.release_images import release_image

PATH = "machine-config/image-references"


def test_the_releases_own_list_is_asked() -> None:
    subject = Subject(cluster(), {})
    with pytest.raises(Unreadable, match="there is no image-references"):
        release_image(subject.facts(), "kube-proxy")
    subject.write(PATH, json.dumps(image_references({"kube-proxy": "quay.io/one@sha256:00"})).encode())
    assert release_image(subject.facts(), "kube-proxy") == "quay.io/one@sha256:00"
    with pytest.raises(Unreadable, match="has no tag hyperkube"):
        release_image(subject.facts(), "hyperkube")
