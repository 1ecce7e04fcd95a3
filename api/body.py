"""Reads the body of a request: bounded while it arrives, of a known type, UTF-8."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fastapi import Request
from starlette.requests import ClientDisconnect

from api.problems import ProblemError, clean_text


class DocumentFormat(StrEnum):
    JSON = "json"
    YAML = "yaml"


MEDIA_TYPES: dict[str, DocumentFormat] = {
    "application/json": DocumentFormat.JSON,
    "application/yaml": DocumentFormat.YAML,
    "application/x-yaml": DocumentFormat.YAML,
    "text/yaml": DocumentFormat.YAML,
}


@dataclass(frozen=True, slots=True)
class Document:
    text: str
    format: DocumentFormat


async def read_document(request: Request) -> Document:
    """The body as text; 415, 413 or 400 otherwise. The type is looked at before a byte is read."""
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    found = MEDIA_TYPES.get(media_type.strip().lower())
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if found is None or ("charset=" in parameters.lower() and charset not in ("utf-8", "utf8")):
        raise ProblemError(
            415,
            "unsupported-media-type",
            "Send the job file as application/json or application/yaml, in UTF-8.",
            headers={"Accept": "application/json, application/yaml"},
        )
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise ProblemError(
            415,
            "unsupported-content-coding",
            f"The body is announced as {clean_text(coding, 40)}; send it uncompressed.",
            headers={"Accept-Encoding": "identity"},  # RFC 9110, 15.5.16
        )
    content = await _read_bounded(request, request.app.state.settings.max_body_bytes)
    try:
        return Document(content.decode("utf-8"), found)
    except UnicodeDecodeError as error:
        raise ProblemError(
            400, "not-utf8", f"The body is no UTF-8 text: byte {error.start} cannot be read."
        ) from None


async def _read_bounded(request: Request, limit: int) -> bytes:
    """Counts while reading, because a chunked body announces no length."""
    too_large = ProblemError(
        413, "body-too-large", f"The body is larger than the {limit} bytes this server takes."
    )
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and len(announced) < 20 and int(announced) > limit:
        raise too_large
    content = bytearray()
    try:
        async for chunk in request.stream():
            content += chunk
            if len(content) > limit:
                raise too_large
    except ClientDisconnect:
        raise ProblemError(400, "body-cut", "The body ended before it was complete.") from None
    return bytes(content)
