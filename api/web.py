"""The web UI's files: `web/dist` in a checkout, `api/static` in an installed package."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth.token import is_api_path
from api.problems import ProblemError, render

_NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Atoll: web UI not built</title></head>
<body><h1>The web UI is not built</h1>
<p>The API runs: see <a href="/api/v1/openapi.json">its description</a>.
For the pages, run <code>make web</code> in the checkout and load this page again.</p></body></html>
"""


def find_bundle() -> Path | None:
    """The folder with the UI's `index.html`, looked for in the checkout first; None when it is not built."""
    here = Path(__file__).resolve().parent
    return next(
        (
            folder
            for folder in (here.parent / "web" / "dist", here / "static")
            if (folder / "index.html").is_file()
        ),
        None,
    )


class WebShell:
    """ASGI layer: answers every path that is no API path with a file of the UI, or with its entry page.

    Entry page for unknown paths without a file suffix: the UI's own router knows them. The bundle is looked for at
    each request, so a build made while the server runs shows up.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_api_path(scope["path"]):
            await self.app(scope, receive, send)
            return
        await _answer(Request(scope))(scope, receive, send)


def _answer(request: Request) -> Response:
    path = request.url.path
    if request.method not in ("GET", "HEAD"):
        problem = ProblemError(
            405, "method-not-allowed", "The web UI answers GET and HEAD only.", headers={"Allow": "GET, HEAD"}
        )
        return render(problem, path)
    bundle = find_bundle()
    if bundle is None:
        return HTMLResponse(_NOT_BUILT, status_code=503, headers={"Cache-Control": "no-store"})
    found = _file_in(bundle, request.scope["path"])
    if found is not None:
        hashed = found.parent.name == "assets"
        return FileResponse(
            found, headers={"Cache-Control": "public, max-age=31536000, immutable" if hashed else "no-cache"}
        )
    if PurePosixPath(path).suffix:
        return render(ProblemError(404, "not-found", "The web UI has no such file."), path)
    return FileResponse(bundle / "index.html", headers={"Cache-Control": "no-cache"})


def _file_in(bundle: Path, path: str) -> Path | None:
    """The file at `path` below `bundle`; None when there is none or the path leads out."""
    try:
        candidate = (bundle / path.lstrip("/")).resolve()
        inside = candidate.is_relative_to(bundle.resolve()) and candidate.is_file()
    except (OSError, ValueError):  # names too long, NUL
        return None
    return candidate if inside else None
