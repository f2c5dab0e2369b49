"""The OpenAPI 3.1 document of the HTTP API, made from the handlers' signatures and the records."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from greencrawl.broker.api import problems
from greencrawl.broker.api.messages import Answer, PageId, Problem, Text
from greencrawl.broker.api.operations import Operation
from greencrawl.broker.api.security import Role
from greencrawl.schema.records import CrawlName, Seed
from greencrawl.schema.records.fields import Url

VERSION = "1"
REF = "#/components/schemas/{name}"

PATH_PARAMETERS: dict[str, tuple[Any, str]] = {
    "crawl": (CrawlName, "Name of a crawl"),
    "id": (PageId, "Id of a page, as lists of pages show it"),
    "host": (str, "Host name or address, with :port unless that is 80 or 443"),
}

_WHEN: dict[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "The request is wrong; `errors` names the fields",
    HTTPStatus.UNAUTHORIZED: "No token, or one that is not known",
    HTTPStatus.FORBIDDEN: "The token's role may not do this, or the request came from a web page",
    HTTPStatus.NOT_FOUND: "No crawl of this name, or no page of this id",
    HTTPStatus.REQUEST_TIMEOUT: "The body did not arrive in time",
    HTTPStatus.CONFLICT: "The crawl's state does not allow this",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is longer than 16 MiB",
    HTTPStatus.REQUEST_URI_TOO_LONG: "The request line is longer than 8 KiB; this answer has no "
    "body",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The media type of the body is not accepted here",
    HTTPStatus.TOO_MANY_REQUESTS: "Redis is near its memory limit; ask again after Retry-After",
    HTTPStatus.SERVICE_UNAVAILABLE: "Redis or the store is away; ask again after Retry-After",
}


def hints(operation: Operation) -> dict[str, Any]:
    """Return the annotations of the operation's handler, resolved."""
    return get_type_hints(operation.run, include_extras=True)


def reply_type(operation: Operation) -> Any:
    """Return the type of a success: the handler's result without the wrapper that sets the
    status."""
    result = hints(operation)["return"]
    return get_args(result)[0] if get_origin(result) is Answer else result


def document(operations: Sequence[Operation]) -> bytes:
    """Return the whole document as JSON."""
    types: list[Any] = [Problem, Url | Seed]
    for operation in operations:
        found = hints(operation)
        types += [found["body"]] if "body" in found else []
        types += [reply_type(operation)] if reply_type(operation) is not Text else []
        types += [PATH_PARAMETERS[name][0] for name in _path_names(operation)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    # Not all annotated types are hashable: their text is the key.
    schema_of = {repr(type_): schema for type_, schema in zip(types, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, schema_of
        )
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Greencrawl broker",
                "version": VERSION,
                "description": "The frontier of a distributed web crawler; see docs/protocol.md.",
            },
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _path_names(operation: Operation) -> list[str]:
    return [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]


def _operation(operation: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    found = hints(operation)
    text = inspect.getdoc(operation.run) or ""
    summary, _, rest = text.partition("\n\n")
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": " ".join(summary.split()),
        "description": " ".join(rest.split()) + f" Role: {operation.role}.",
        "parameters": _parameters(operation, found, schema_of),
        "responses": _responses(operation, found, schema_of),
    }
    if operation.role is not Role.OPEN:
        described["security"] = [{}, {"bearer": []}]
    if "body" in found:
        described["requestBody"] = _body(found["body"], schema_of)
    return described


def _parameters(
    operation: Operation, found: dict[str, Any], schema_of: dict[str, Any]
) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for name in _path_names(operation):
        type_, meaning = PATH_PARAMETERS[name]
        schema = schema_of[repr(type_)]
        listed.append(
            {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}
        )
    if "query" in found:
        record = msgspec.json.schema(found["query"])["$defs"][found["query"].__name__]
        for name, schema in record["properties"].items():
            listed.append(
                {
                    "name": name,
                    "in": "query",
                    "required": name in record.get("required", ()),
                    "schema": _not_null(schema),
                }
            )
    return listed


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without null: a query cannot carry null, so an optional parameter is
    absent."""
    branches = [branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}]
    only: dict[str, Any] = branches[0] if len(branches) == 1 else schema
    return only


def _body(type_: Any, schema_of: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": schema_of[repr(type_)]}}
    if type_.__name__ == "SeedRequest":
        content["application/x-ndjson"] = {
            "schema": {"type": "string", "description": "A URL, or a Seed as JSON, on each line"},
        }
    return {"required": True, "content": content}


def _responses(
    operation: Operation, found: dict[str, Any], schema_of: dict[str, Any]
) -> dict[str, Any]:
    reply = reply_type(operation)
    if reply is Text:
        content = {"text/plain": {"schema": {"type": "string"}}}
        if operation.path.endswith(".json"):
            content = {"application/json": {"schema": {"type": "object"}}}
        elif operation.path == "/metrics":
            content["application/openmetrics-text"] = {"schema": {"type": "string"}}
        elif operation.path.endswith("/body"):
            content = {"application/octet-stream": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schema_of[repr(reply)]}}
    responses: dict[str, Any] = {
        str(int(status)): {"description": status.phrase, "content": content}
        for status in operation.statuses
    }
    problem = {problems.MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Problem")}}}
    for status in sorted(problem_statuses(operation, found)):
        described: dict[str, Any] = {"description": _WHEN[status], "content": problem}
        if status is HTTPStatus.REQUEST_URI_TOO_LONG:
            del described["content"]  # the server answers it before there is a request
        if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
            described["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
        responses[str(int(status))] = described
    return responses


def problem_statuses(operation: Operation, found: dict[str, Any]) -> set[HTTPStatus]:
    """Return every 4xx and 5xx that the operation may answer, except a broken broker (500)."""
    statuses = {*operation.problems, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_REQUEST}
    statuses.add(HTTPStatus.FORBIDDEN)
    if operation.role is not Role.OPEN:
        statuses.add(HTTPStatus.UNAUTHORIZED)
    if {"crawl", "id"} & set(_path_names(operation)) or _names_crawl(found):
        statuses.add(HTTPStatus.NOT_FOUND)
    if "body" in found:
        statuses |= {
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        }
    return statuses


def _names_crawl(found: dict[str, Any]) -> bool:
    records = [found[key] for key in ("body", "query") if key in found]
    return any("crawl" in record.__struct_fields__ for record in records)
