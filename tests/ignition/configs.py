"""Configs for the tests of this room: made by hand, and drawn at random in random formatting."""

import hashlib
import json
from typing import Any, Final

from hypothesis import strategies as st

from umbilical.ignition.data_url import DataUrl, format_data_url, gzip

SCRIPT: Final = b'#!/bin/bash\nset -euo pipefail\necho "stage one" && sleep 1\n'
SCRIPT_PATH: Final = "/usr/local/bin/bootkube.sh"


def entry(path: str, content: bytes = b"text\n", **fields: Any) -> dict[str, Any]:
    """Make an entry as the installer makes them."""
    contents = {"source": format_data_url(content)}
    return {"path": path, "overwrite": True, "user": {"name": "root"}, "mode": 384, "contents": contents} | fields


def config(*files: dict[str, Any], version: str = "3.2.0", **sections: Any) -> dict[str, Any]:
    return {"ignition": {"version": version}, "storage": {"files": list(files)}} | sections


def written(value: dict[str, Any], **format_options: Any) -> bytes:
    return json.dumps(value, **format_options).encode()


def gzipped_entry(path: str, content: bytes, kind: str = "sha512") -> dict[str, Any]:
    digest = f"{kind}-{hashlib.new(kind, content).hexdigest()}"
    source = DataUrl("application/gzip", True, gzip(content)).format()
    contents = {"source": source, "compression": "gzip", "verification": {"hash": digest}}
    return entry(path, contents=contents)


_KEYS: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_SCALARS: Final = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.text(max_size=12)
    | st.sampled_from(["</&>\u2028", "\x00\x1f", "é\U0001f600", "{", '"]}'])
)
JSON_VALUES: Final = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=8
)
_SPACE: Final = st.text(" \t\r\n", max_size=3)


@st.composite
def entries(draw: st.DrawFn, path: str) -> dict[str, Any]:
    """A file's entry with an encoding, unknown fields and an order of keys drawn at random."""
    content = draw(st.binary(max_size=40))
    contents: dict[str, Any] = {"compression": draw(st.sampled_from([None, "", "gzip"]))}
    payload = gzip(content) if contents["compression"] == "gzip" else content
    media_type = draw(st.sampled_from(["", "text/plain;charset=utf-8", "application/x-y;a=b;c=%20"]))
    contents["source"] = DataUrl(media_type, draw(st.booleans()), payload).format()
    kind = draw(st.sampled_from(["", "sha256", "sha512"]))
    contents["verification"] = {"hash": f"{kind}-{hashlib.new(kind, content).hexdigest()}"} if kind else {}
    known = {"path": path, "mode": draw(st.integers(0, 4095)), "contents": contents}
    unknown = draw(st.dictionaries(_KEYS.filter(lambda key: key not in known), JSON_VALUES, max_size=2))
    return draw(shuffled(unknown | known | {"contents": draw(shuffled(contents))}))


@st.composite
def shuffled(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    return {key: value[key] for key in draw(st.permutations(list(value)))}


@st.composite
def configs(draw: st.DrawFn, min_files: int = 0) -> dict[str, Any]:
    names = draw(st.lists(st.text('abé&\\" ', min_size=1, max_size=4), min_size=min_files, max_size=4, unique=True))
    files = [draw(entries(f"/{name}")) for name in names]
    storage = draw(shuffled({"files": files, "directories": draw(JSON_VALUES), "\u0026": draw(JSON_VALUES)}))
    return draw(shuffled({"ignition": {"version": "3.2.0"}, "storage": storage, "x": draw(JSON_VALUES)}))


@st.composite
def formatted(draw: st.DrawFn, value: dict[str, Any]) -> bytes:
    """Write a value with any white space, escapes or none, and anything that JSON allows around it."""
    indent = draw(st.sampled_from([None, 1, "\t"]))
    comma, colon = (draw(_SPACE) + sign + draw(_SPACE) for sign in ",:")
    text = json.dumps(value, indent=indent, separators=(comma, colon), ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        # Outside of strings there is no &, < or >, so this is another spelling of the same value.
        text = text.replace("&", "\\u0026").replace("<", "\\u003C").replace("/", "\\/")
    if indent is not None and draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return (draw(_SPACE) + text + draw(_SPACE)).encode("utf-8", "surrogatepass")
