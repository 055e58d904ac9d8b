"""The description of the API: what FastAPI finds out by itself, and the problems that every route can answer with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from noonbell.api.problems import FieldError, Problem, problems

_ABOUT: Final = """\
Schedules that can account for every minute. Every call needs an API key: `Authorization: Bearer nbk_…`.

Errors are `application/problem+json` and name the field. Lists come in pages: pass `next_cursor` on as `cursor`.
"""
_TEMPLATE: Final = "#/components/schemas/{model}"


def install(app: FastAPI) -> None:
    """Let the app describe itself so."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]  # the way that FastAPI offers


def _described(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=_ABOUT, routes=app.routes, separate_input_output_schemas=True
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (FieldError, Problem):
        schema = model.model_json_schema(ref_template=_TEMPLATE)
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    for operation in _operations(document):
        responses = operation["responses"]
        if "HTTPValidationError" in str(responses.get("422", "")):
            del responses["422"]
        always: tuple[int, ...] = (401, 403, 422, 429, 503) if operation.get("security") else (422, 503)
        if "requestBody" in operation:
            always = (400, 408, 413, *always)
        for status, response in problems(*always).items():
            responses.setdefault(str(status), response)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document.get("paths", {}).values():
        yield from (
            operation for operation in path.values() if isinstance(operation, dict) and "responses" in operation
        )
