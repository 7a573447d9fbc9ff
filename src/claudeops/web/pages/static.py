"""Files that pages load: one style sheet, scripts, icons.

An address holds the file's digest, so that a browser keeps the file. htmx and its extensions are copies of released
files, as static/vendored.txt says, which a test compares; nothing is loaded from anywhere else.
"""

from __future__ import annotations

import gzip
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from typing import Final

import msgspec
from starlette.responses import Response

from claudeops.web.endpoints import WebCall
from claudeops.web.problems import RefusedError

_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_DIGITS: Final = 12


class _File(msgspec.Struct, frozen=True):
    content: bytes
    packed: bytes
    media_type: str


class Files:
    """The files, read once when the first is needed."""

    @cached_property
    def _by_name(self) -> dict[str, tuple[str, _File]]:
        found = {}
        for file in sorted(files("claudeops.web").joinpath("static").iterdir(), key=lambda one: one.name):
            stem, _, ending = file.name.rpartition(".")
            if ending in _TYPES:
                content = file.read_bytes()
                served = f"{stem}.{sha256(content).hexdigest()[:_DIGITS]}.{ending}"
                found[file.name] = (served, _File(content, gzip.compress(content, mtime=0), _TYPES[ending]))
        return found

    @cached_property
    def _served(self) -> dict[str, _File]:
        return dict(self._by_name.values())

    def address(self, name: str) -> str:
        """Return the address of a file by its name in the project."""
        return f"/static/{self._by_name[name][0]}"

    def text(self, name: str) -> str:
        """Return a file as text."""
        return self._by_name[name][1].content.decode()

    async def serve(self, call: WebCall) -> Response:
        """Answer with a file. Raises `RefusedError` for one that is not there, or not in this version."""
        file = self._served.get(call.params["name"])
        if file is None:
            raise RefusedError(404, "There is no such file.")
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable",
            "Vary": "Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        }
        if "gzip" in call.headers.get("accept-encoding", "") and len(file.packed) < len(file.content):
            return Response(file.packed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
        return Response(file.content, media_type=file.media_type, headers=headers)
