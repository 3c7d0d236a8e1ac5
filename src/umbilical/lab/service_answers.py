"""The answers of the lab's service: admission reviews, conversions, greetings. Pure functions, no sockets."""

from collections.abc import Mapping
from typing import Any, Final

from umbilical.lab.admission_review import API_VERSION as ADMISSION_VERSION
from umbilical.lab.admission_review import KIND as ADMISSION_KIND

DENIAL: Final = "the webhook in the cluster says no"
VERDICT_LABEL: Final = "verdict"
CONVERTED_BY: Final = "umbilical.dev/converted-by"
"""An annotation, because a conversion may change only labels and annotations of the metadata."""
GROUP: Final = "lab.umbilical.dev"
VERSION: Final = "v1"
GREETED: Final = ("world", "cluster", "bootstrap")
"""Names in the list of greetings; other names can be read one by one."""
LETTER_GROUP: Final = "post.umbilical.dev"
_CONVERSION: Final = ("apiextensions.k8s.io/v1", "ConversionReview")
_SEPARATOR: Final = ", "


class BadQuestion(Exception):
    """The body is not a valid review."""


def review(body: object, node: str) -> dict[str, Any]:
    """Answer an AdmissionReview: deny objects with the label `verdict: deny`, allow all others."""
    request = _request(body, ADMISSION_VERSION, ADMISSION_KIND)
    allowed = _labels(request).get(VERDICT_LABEL) != "deny"
    response: dict[str, Any] = {"uid": request["uid"], "allowed": allowed}
    if not allowed:
        response["status"] = {"code": 403, "message": f"{DENIAL}: {node}"}
    return {"apiVersion": ADMISSION_VERSION, "kind": ADMISSION_KIND, "response": response}


def convert(body: object, node: str) -> dict[str, Any]:
    """Answer a ConversionReview for letters: one text in v1, two fields in v2."""
    version, kind = _CONVERSION
    request = _request(body, version, kind)
    objects, desired = request.get("objects"), request.get("desiredAPIVersion")
    if not isinstance(objects, list) or not isinstance(desired, str):
        raise BadQuestion("request.objects or request.desiredAPIVersion is missing")
    response: dict[str, Any] = {"uid": request["uid"]}
    try:
        converted = [_converted(one, desired, node) for one in objects]
    except BadQuestion as error:
        response["result"] = {"status": "Failure", "message": str(error)}
    else:
        response |= {"convertedObjects": converted, "result": {"status": "Success"}}
    return {"apiVersion": version, "kind": kind, "response": response}


def api_resource(path: str, node: str, user: str, accept: str = "") -> dict[str, Any] | None:
    """Answer one path of the aggregated API; None: not found."""
    place = f"/apis/{GROUP}/{VERSION}"
    fixed = {"/apis": _groups, f"/apis/{GROUP}": _group, place: _resources}
    if path in fixed:
        return fixed[path]()
    collection, name = f"{place}/greetings", path.removeprefix(f"{place}/greetings/")
    if path == collection:
        return _listed([greeting(one, node, user) for one in GREETED], accept)
    if path == f"{collection}/{name}" and name and "/" not in name:
        one = greeting(name, node, user)
        return _table([one]) if _wants_table(accept) else one
    return None


def greeting(name: str, node: str, user: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Greeting",
        "metadata": {"name": name},
        "text": f"hello {name}, says {node}",
        "askedBy": user,
    }


def _request(body: object, version: str, kind: str) -> dict[str, Any]:
    if not isinstance(body, dict) or (body.get("apiVersion"), body.get("kind")) != (version, kind):
        raise BadQuestion(f"expected a {kind} of {version}")
    request = body.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise BadQuestion("request.uid is missing")
    return request


def _labels(request: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = _mapping(_mapping(request.get("object")).get("metadata"))
    return _mapping(metadata.get("labels"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _converted(letter: object, desired: str, node: str) -> dict[str, Any]:
    if not isinstance(letter, dict) or not isinstance(letter.get("metadata"), dict):
        raise BadQuestion("an object without metadata")
    rules = {f"{LETTER_GROUP}/v1": _to_v1, f"{LETTER_GROUP}/v2": _to_v2}
    if desired not in rules or not any(letter.get("apiVersion") == version for version in rules):
        raise BadQuestion(f"no rule from {letter.get('apiVersion')} to {desired}")
    spec = _mapping(letter.get("spec"))
    if letter["apiVersion"] != desired:
        spec = rules[desired](spec)
    annotations = {**_mapping(letter["metadata"].get("annotations")), CONVERTED_BY: node}
    return {
        **letter,
        "apiVersion": desired,
        "metadata": {**letter["metadata"], "annotations": annotations},
        "spec": dict(spec),
    }


def _to_v2(spec: Mapping[str, Any]) -> dict[str, Any]:
    greeted, separator, name = str(spec.get("text", "")).partition(_SEPARATOR)
    # Without a name the field is left out, so that converting back gives the same letter.
    return {"greeting": greeted, "name": name} if separator else {"greeting": greeted}


def _to_v1(spec: Mapping[str, Any]) -> dict[str, Any]:
    greeted = str(spec.get("greeting", ""))
    return {"text": f"{greeted}{_SEPARATOR}{spec['name']}" if "name" in spec else greeted}


def _groups() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "APIGroupList", "groups": [_group()]}


def _group() -> dict[str, Any]:
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {"apiVersion": "v1", "kind": "APIGroup", "name": GROUP, "versions": [version], "preferredVersion": version}


def _resources() -> dict[str, Any]:
    resource = {
        "name": "greetings",
        "singularName": "greeting",
        "namespaced": False,
        "kind": "Greeting",
        "verbs": ["get", "list"],
    }
    return {
        "apiVersion": "v1",
        "kind": "APIResourceList",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [resource],
    }


def _listed(greetings: list[dict[str, Any]], accept: str) -> dict[str, Any]:
    if _wants_table(accept):
        return _table(greetings)
    # Not empty: clients start a watch from this version, and "" means "any".
    metadata = {"resourceVersion": "1"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GreetingList", "metadata": metadata, "items": greetings}


def _wants_table(accept: str) -> bool:
    return "as=Table" in accept and "v=v1;" in accept.replace(" ", "")


def _table(greetings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the Table that `kubectl get` prints."""
    columns = ("Name", "Text", "Asked By")
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "Table",
        "metadata": {"resourceVersion": "1"},
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": "", "priority": 0} for name in columns
        ],
        "rows": [
            {"cells": [one["metadata"]["name"], one["text"], one["askedBy"]], "object": _partial(one)}
            for one in greetings
        ],
    }


def _partial(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": one["metadata"]}
