"""The table of keys."""

import re

from umbilical.assets.hardway.config_keys import KEYS


def test_every_key_is_explained_in_a_sentence() -> None:
    for key in KEYS:
        assert re.fullmatch(r"[^\n]{4,110}\.", key.about), key.path


def test_keys_are_spelled_as_kubernetes_does() -> None:
    for key in KEYS:
        assert re.fullmatch(r"([a-z][A-Za-z]*(\[\])?\.)*[a-z][A-Za-z]*", key.path)
