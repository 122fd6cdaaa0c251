"""The OpenAPI document of the REST API, and a page that shows it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel

from asterism.api.endpoints import EVENTS, JSON, OPEN, PROBLEM, STATUS, ApiEndpoint, NoQuery
from asterism.api.shapes import Schema, Shapes
from asterism.version import __version__

_PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong: a stable code, and a sentence for a person.",
    "properties": {
        "type": {"type": "string", "description": "A stable code, such as `not-found`."},
        "title": {"type": "string"},
        "detail": {"type": "string"},
        "status": {"type": "integer"},
        "instance": {"type": ["string", "null"], "description": "The id of the request."},
    },
    "required": ["detail", "instance", "status", "title", "type"],
    "additionalProperties": False,
}
_MEANINGS = {
    400: "The request is not as this document says.",
    401: "Nobody has said who asks.",
    402: "A budget is used up.",
    403: "Whoever asks may not do this.",
    404: "There is no such thing, or whoever asks may not see it.",
    409: "It does not fit what is there.",
    412: "It was changed since it was read.",
    413: "The request is too large.",
    422: "The request can be read, but a value in it makes no sense here.",
    429: "Too many requests.",
    500: "Something went wrong in the server.",
    503: "The store cannot be reached.",
}
_SERVER = "server"
_FILE: Schema = {"type": "string", "format": "binary"}
_UPLOADS: dict[str, Schema] = {
    "PUT": {"application/octet-stream": {"schema": _FILE}},
    "POST": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {"file": {"type": "array", "items": _FILE, "minItems": 1}},
                "required": ["file"],
            }
        }
    },
}
"""What a request that brings files has as its body."""
_DESCRIPTION = """\
The native API: the nouns and verbs of a home, as JSON. Beside it, the server has

- `/openai/v1`, which speaks the API of OpenAI, and `/mcp`, a server of the Model Context Protocol:
  each is as its own specification says;
- `POST /api/call`, by which `Asterism.connect` and `asterism --url` call verbs by their names:
  lines of JSON between programs of the same release, for tokens of the owner without limits.

A list has `next` while there is more; where a summary says that a list is whole, `next` is null.
"""
_PROBES: dict[str, tuple[str, str, Schema]] = {
    "/health": (
        "Return how the server does; 503 if it cannot work.",
        JSON,
        {
            "type": "object",
            "properties": {
                "status": {"enum": ["ok", "troubled", "failing"]},
                "version": {"type": "string"},
                "store": {"enum": ["sqlite", "postgresql"]},
                "agents": {"type": ["integer", "null"]},
                "waiting": {
                    "type": ["integer", "null"],
                    "description": "Messages that wait for an answer.",
                },
                "problems": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["agents", "problems", "status", "store", "version", "waiting"],
            "additionalProperties": False,
        },
    ),
    "/ready": (
        "Tell whether requests may be sent here; 503 if not, as while the server stops.",
        JSON,
        {
            "type": "object",
            "properties": {"ready": {"type": "boolean"}},
            "required": ["ready"],
            "additionalProperties": False,
        },
    ),
    "/metrics": (
        "Return what is counted and measured, as Prometheus or OpenMetrics text.",
        "text/plain",
        {"type": "string"},
    ),
}
"""What stands beside the endpoints and needs no token: its summary, its media type and what it
answers."""
_SUCCESS = {200: "Done.", 201: "Created.", 202: "Accepted.", 204: "Done."}


def document(endpoints: Sequence[ApiEndpoint], prefix: str = "/api") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of endpoints."""
    shapes = Shapes()
    shapes.components["Problem"] = _PROBLEM
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for one in endpoints:
        paths[f"{prefix}{one.path}"][one.method.lower()] = _operation(one, shapes)
    for path in _PROBES:
        paths[path]["get"] = _probe(path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "asterism",
            "version": __version__,
            "summary": "A self-hosted home for long-lived AI agents.",
            "description": _DESCRIPTION,
        },
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in sorted({_SERVER, *(one.tag for one in endpoints)})],
        "paths": dict(paths),
        "components": {
            "schemas": dict(sorted(shapes.components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _probe(path: str) -> dict[str, Any]:
    summary, media, schema = _PROBES[path]
    answers = {200: "Done.", **({503: "It cannot work now."} if media == JSON else {})}
    return {
        "operationId": path.strip("/"),
        "summary": summary,
        "tags": [_SERVER],
        "security": [],
        "responses": {
            str(status): {"description": said, "content": {media: {"schema": schema}}}
            for status, said in answers.items()
        },
    }


def _operation(one: ApiEndpoint, shapes: Shapes) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": one.run.__name__,
        "summary": one.summary,
        "tags": [one.tag],
        "x-verb": one.verb,
        "parameters": [*_parameters(one, shapes)],
        "responses": _responses(one, shapes),
    }
    if one.verb == OPEN:
        operation["security"] = []
    if one.body is not None:
        schema = _model(one.body, shapes)
        required = any(field.is_required() for field in one.body.model_fields.values())
        operation["requestBody"] = {"required": required, "content": {JSON: {"schema": schema}}}
    if one.upload:
        operation["requestBody"] = {"required": True, "content": _UPLOADS[one.method]}
    if not operation["parameters"]:
        del operation["parameters"]
    return operation


def _parameters(one: ApiEndpoint, shapes: Shapes) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", one.path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 400},
        }
    if one.query is not NoQuery:
        schema = one.query.model_json_schema(ref_template="#/components/schemas/{model}")
        _take_definitions(schema, shapes)
        for name, part in schema["properties"].items():
            required = name in schema.get("required", ())
            yield {"name": name, "in": "query", "required": required, "schema": part}
    if one.conditional:
        yield {
            "name": "if-match",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The ETag of the state that is changed.",
        }
    if one.keyed:
        yield {
            "name": "idempotency-key",
            "in": "header",
            "required": False,
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "pattern": "^[!-~]([ -~]*[!-~])?$",
            },
            "description": (
                "A key of yours for this request, such as a UUID. The same request again with the "
                "same key and token is answered as before within 24 hours, and not done again."
            ),
        }
    if one.media == EVENTS and one.method == "GET":
        yield {
            "name": "last-event-id",
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": "The id of the last event that was seen.",
        }


def _responses(one: ApiEndpoint, shapes: Shapes) -> dict[str, Any]:
    success: dict[str, Any] = {"description": _SUCCESS[one.status]}
    if one.media == EVENTS:
        success["content"] = {EVENTS: {"schema": {"type": "string"}}}
    elif one.answer is not None:
        success["content"] = {one.media: {"schema": shapes.of(one.answer)}}
    if one.edits:
        success["headers"] = {"etag": {"schema": {"type": "string"}}}
    problems = {
        str(status): {
            "description": _MEANINGS[status],
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({*(status for _, status in STATUS), 429, 500})
    }
    return {str(one.status): success, **problems}


def _model(model: type[BaseModel], shapes: Shapes) -> Schema:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    _take_definitions(schema, shapes)
    shapes.components[model.__name__] = schema
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _take_definitions(schema: Schema, shapes: Shapes) -> None:
    for name, part in schema.pop("$defs", {}).items():
        shapes.components.setdefault(name, part)


# -- a page to read --------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
h1 { margin-bottom: 0 } h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: .3rem .7rem }
summary { cursor: pointer } code, pre { font: 14px/1.45 ui-monospace, monospace }
pre { background: var(--soft); border-radius: 6px; overflow: auto; padding: .7rem }
.method { display: inline-block; font-weight: 600; min-width: 4.5rem }
.verb { color: GrayText; float: right } table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid var(--line); padding: .25rem .5rem; vertical-align: top }
@media (max-width: 40rem) { .verb { display: none } }
"""


def page(doc: dict[str, Any]) -> str:
    """Return the document as a page of HTML that needs nothing else."""
    heading = (
        f"<h1>asterism API</h1><p>Version {escape(doc['info']['version'])} · "
        '<a href="openapi.json">OpenAPI 3.1 document</a> · send '
        "<code>Authorization: Bearer TOKEN</code></p>"
    )
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>asterism API</title><style>{_STYLE}</style>",
        heading,
    ]
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, methods in doc["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append(_section(path, method, operation, doc))
    for tag in sorted(by_tag):
        parts += [f"<h2>{escape(tag)}</h2>", *by_tag[tag]]
    return "\n".join(parts)


def _section(path: str, method: str, operation: dict[str, Any], doc: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(part['name'])}</code></td><td>{escape(part['in'])}</td>"
        f"<td>{escape(str(part['schema'].get('description', '')))}</td></tr>"
        for part in operation.get("parameters", ())
    )
    body = ""
    if JSON in operation.get("requestBody", {}).get("content", ()):
        ref = operation["requestBody"]["content"][JSON]["schema"]["$ref"].rpartition("/")[2]
        body = f"<p>Body</p><pre>{escape(_outline(doc['components']['schemas'][ref]))}</pre>"
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}'
        f'</code> <span class="verb">{escape(operation.get("x-verb", ""))}</span><br>'
        f"{escape(operation['summary'])}</summary><table>{rows}</table>{body}</details>"
    )


def _outline(schema: Schema) -> str:
    required = schema.get("required", ())
    properties: dict[str, Schema] = schema.get("properties", {})
    return "\n".join(
        f"{name}: {_kind(part)}{'' if name in required else ' (optional)'}"
        for name, part in properties.items()
    )


def _kind(part: Schema) -> str:
    choices: list[Schema] = part.get("anyOf", [])
    named = part.get("type") or " or ".join(str(one.get("type", "…")) for one in choices)
    return str(named or "…")
