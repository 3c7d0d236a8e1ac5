"""A config as its original bytes, and edits that keep all other bytes.

Formatting, key order, escapes and unknown fields stay unchanged.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from umbilical.fault import IgnitionError
from umbilical.ignition.config import Config, File, config_of
from umbilical.ignition.data_url import DataUrl, gzip, hash_like, is_data_url, parse_data_url
from umbilical.ignition.json_text import LocatedValue, Span, decode_text, elements, members, parse_object

_COMPACT: Final = (",", ":")


class IgnitionDocument:
    """Immutable: every edit returns a new document with a newly parsed config."""

    def __init__(self, content: bytes) -> None:
        self.content: Final = content
        self._text: Final = decode_text(content)
        self.config: Final[Config] = config_of(parse_object(self._text))

    def entry_text(self, path: str) -> str:
        """Return the text of the file's element in storage.files."""
        start, end = self._entry(path).span
        return self._text[start:end]

    def with_content(self, path: str, content: bytes) -> "IgnitionDocument":
        """Replace the content of a file, and its hash if it has one.

        The encoding stays: base64 with its media type, percent-encoding, gzip.
        """
        entry = self._entry(path)
        file = self.config.files_at(path)[0]
        _check_editable(file)
        if file.content() == content:
            return self
        contents = members(self._text, entry.span.start)["contents"].span
        edits = [self._source_edit(contents, file, content), *self._hash_edit(contents, file, content)]
        return self._edited(edits)

    def with_entry_text(self, path: str, text: str) -> "IgnitionDocument":
        """Replace the text of the file's element; the new one must have the same path."""
        # Rejects lone surrogates, which cannot be written.
        if parse_object(decode_text(text.encode("utf-8", "surrogatepass"))).get("path") != path:
            raise _uneditable(path, "the replacement is an entry with another path")
        return self._edited([(self._entry(path).span, text)])

    def with_files(self, entries: Sequence[Mapping[str, Any]]) -> "IgnitionDocument":
        """Append entries to storage.files as compact JSON."""
        self._check_new([str(entry.get("path", "")) for entry in entries])
        if not entries:
            return self
        added = ",".join(json.dumps(entry, separators=_COMPACT, allow_nan=False) for entry in entries)
        if not self._places:
            start = self._files.span.start + 1
            return self._edited([(Span(start, start), added)])
        end = self._places[-1].span.end
        return self._edited([(Span(end, end), "," + added)])

    def without_files(self, paths: Collection[str]) -> "IgnitionDocument":
        """Remove the entries with these paths, which must exist; the exact inverse of `with_files`."""
        for path in paths:
            self._entry(path)
        removed = [_path_of(place) in paths for place in self._places]
        return self._edited([(span, "") for span in _gaps([place.span for place in self._places], removed)])

    @cached_property
    def _files(self) -> LocatedValue:
        root = members(self._text, self._text.index("{"))
        storage = root.get("storage")
        files = (
            members(self._text, storage.span.start).get("files")
            if storage and isinstance(storage.value, dict)
            else None
        )
        if files is None or not isinstance(files.value, list):
            raise _uneditable("storage.files", "the config has no such list")
        return files

    @cached_property
    def _places(self) -> list[LocatedValue]:
        return elements(self._text, self._files.span.start)

    def _entry(self, path: str) -> LocatedValue:
        found = [place for place in self._places if _path_of(place) == path]
        if len(found) != 1:
            raise _uneditable(path, f"storage.files has {len(found)} entries with this path, expected 1")
        return found[0]

    def _source_edit(self, contents: Span, file: File, content: bytes) -> tuple[Span, str]:
        old = parse_data_url(file.source or "")
        payload = gzip(content) if file.compression == "gzip" else content
        source = DataUrl(old.media_type, old.is_base64, payload).format()
        return members(self._text, contents.start)["source"].span, json.dumps(source)

    def _hash_edit(self, contents: Span, file: File, content: bytes) -> list[tuple[Span, str]]:
        if file.hash is None:
            return []
        verification = members(self._text, contents.start)["verification"].span
        return [(members(self._text, verification.start)["hash"].span, json.dumps(hash_like(file.hash, content)))]

    def _check_new(self, paths: list[str]) -> None:
        present = {_path_of(place) for place in self._places}
        for index, path in enumerate(paths):
            if path in present or path in paths[:index]:
                raise _uneditable(path, "storage.files would have two entries with this path, which Ignition refuses")

    def _edited(self, edits: list[tuple[Span, str]]) -> "IgnitionDocument":
        parts: list[str] = []
        position = 0
        for (start, end), replacement in sorted(edits):
            parts += (self._text[position:start], replacement)
            position = end
        return IgnitionDocument("".join([*parts, self._text[position:]]).encode("utf-8"))


def _gaps(spans: list[Span], removed: list[bool]) -> list[Span]:
    """Return the spans to cut: removed elements with the comma before them, or after them at the front."""
    cuts: list[Span] = []
    for index, span in enumerate(spans):
        if not removed[index]:
            continue
        if not all(removed[:index]):
            cuts.append(Span(spans[index - 1].end, span.end))
        elif index + 1 < len(spans):
            cuts.append(Span(span.start, spans[index + 1].start))
        else:
            cuts.append(span)
    return cuts


def _path_of(place: LocatedValue) -> str | None:
    path = place.value.get("path") if isinstance(place.value, dict) else None
    return path if isinstance(path, str) else None


def _check_editable(file: File) -> None:
    if file.source is None:
        raise _uneditable(file.path, "it has no contents.source (it appends, or is empty)")
    if not is_data_url(file.source):
        scheme = file.source.partition(":")[0]
        raise _uneditable(file.path, f"its content is fetched at boot ({scheme}:), not in the config")


def _uneditable(path: str, why: str) -> IgnitionError:
    return IgnitionError("UMB143", f"could not edit {path}", why, "use the unchanged config of the installer")
