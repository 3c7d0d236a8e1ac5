"""Checks documents of `/v1/status` against docs/status.schema.json, and that the schema misses no member."""

import copy
import json
from functools import cache
from typing import Any, Final

import jsonschema
from tests.architecture.rooms import REPOSITORY

COMBINED: Final = "trouble"
"""The definition that is used in `allOf` only."""
SCHEMA: Final = REPOSITORY / "docs" / "status.schema.json"


@cache
def _validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    # Readers must bear further members, and our own documents have none that the schema does not explain.
    strict = _closed(copy.deepcopy(schema))
    return jsonschema.Draft202012Validator(strict, format_checker=jsonschema.FormatChecker())


def _closed(part: Any, *, is_open: bool = False) -> Any:
    """Forbid further members. Of parts that are combined by `allOf`, the whole has the rule."""
    if isinstance(part, list):
        return [_closed(each, is_open=is_open) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _closed(value, is_open=name in ("allOf", COMBINED)) for name, value in part.items()}
    if closed.pop("additionalProperties", None) is True and not is_open:
        closed["unevaluatedProperties"] = False
    elif isinstance(part.get("additionalProperties"), dict):
        closed["additionalProperties"] = part["additionalProperties"]
    if "allOf" in closed:
        closed["unevaluatedProperties"] = False
    return closed


def check(document: dict[str, Any]) -> None:
    """Raise ValidationError for a member that is missing, wrong or unknown."""
    # By its kind: of a `oneOf`, errors name no member.
    kind = {"ServerStatus": "server", "AgentStatus": "agent"}[document["kind"]]
    _validator().evolve(schema=_part(kind)).validate(document)


def _part(name: str) -> dict[str, Any]:
    whole = _validator().schema
    assert isinstance(whole, dict)
    return {"$ref": f"#/$defs/{name}", "$defs": whole["$defs"]}
