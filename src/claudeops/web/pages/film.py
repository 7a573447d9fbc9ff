"""The film of a session: its lines at the times at which they came, with a scrubber; also as one file.

Time in which nothing came is folded. The file loads nothing: its style and its script are in it, by their digests in
its policy. Its foot has the digest of the log and the head of the session's audit chain: `claudeops audit verify`
proves the second, and whoever has the log the first.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from claudeops.domain.sessions import Status
from claudeops.store.reading.calls import CallVerdict
from claudeops.store.reading.chain_calls import audit_head
from claudeops.web.api.answers import single
from claudeops.web.endpoints import WebCall
from claudeops.web.pages.chains import session_of
from claudeops.web.pages.site import Site
from claudeops.web.ports import OpenLog
from claudeops.web.problems import RefusedError
from claudeops.wording.stream import ShownLine

MOST: Final = 5000
"""Lines of a film."""

FOLD: Final = timedelta(seconds=3)
"""A longer wait is shown as one of this length."""

_BATCH: Final = 200


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a film."""

    line: ShownLine
    at_ms: int  # since the beginning, waits folded
    waited_s: float  # that were folded before it; 0: none


class Film(msgspec.Struct, frozen=True, kw_only=True):
    """All of a film."""

    frames: tuple[Frame, ...]
    verdicts: Mapping[str, CallVerdict]
    is_cut: bool  # there are more lines than a film has
    digest: str  # SHA-256 of the log, in hexadecimal
    head: str  # of the session's audit chain

    @property
    def length_ms(self) -> int:
        """How long it takes at its own speed."""
        return self.frames[-1].at_ms if self.frames else 0


def frames_of(lines: Sequence[ShownLine]) -> tuple[Frame, ...]:
    """Return lines with the times at which a film shows them; one whose time is not known comes with the one before."""
    found, at, before = [], timedelta(0), None
    for line in lines:
        waited = timedelta(0) if before is None or line.at is None else max(line.at - before, timedelta(0))
        at += min(waited, FOLD)
        folded = waited.total_seconds() if waited > FOLD else 0.0
        found.append(Frame(line=line, at_ms=round(at.total_seconds() * 1000), waited_s=folded))
        before = line.at or before
    return tuple(found)


async def film_page(site: Site, call: WebCall) -> Response:
    """Answer with the film of a session."""
    number = call.number("id")
    values = {"film": await _film(site, number), "number": number}
    return await site.page(call, "film.html", title=f"Film of session {number}", values=values)


async def film_answer(site: Site, call: WebCall) -> Response:
    """Answer with the same for programs."""
    return single(call, await _film(site, call.number("id")))


async def film_file(site: Site, call: WebCall) -> Response:
    """Answer with the film as one file, which needs nothing else."""
    number = call.number("id")
    film = await _film(site, number)
    style, script = site.pages.files.text("style.css"), site.pages.files.text("film.js")
    text = site.pages.environment.get_template("film_file.html").render(
        film=film,
        number=number,
        title=f"Film of session {number}",
        # Our own files, which no text from elsewhere is part of.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'",
    )
    headers = {
        "Content-Disposition": f'attachment; filename="claudeops-session-{number}.html"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


async def _film(site: Site, number: int) -> Film:
    session = await session_of(site, number)
    if session.status is not Status.ENDED:
        raise RefusedError(404, f"Session {number} has not ended: its page follows it.")
    log = await site.logs.open(number)
    if log is None:
        raise RefusedError(404, f"Session {number} has no log.")
    try:
        lines, verdicts, is_cut = await _lines(log)
        digest = await log.digest()
    except OSError as error:
        raise RefusedError(404, f"The log of session {number} cannot be read: {error.strerror or error}.") from None
    finally:
        log.close()
    head = await site.database.read(partial(audit_head, session_id=number))
    return Film(frames=frames_of(lines), verdicts=verdicts, is_cut=is_cut, digest=digest, head=head)


async def _lines(log: OpenLog) -> tuple[Sequence[ShownLine], Mapping[str, CallVerdict], bool]:
    lines: list[ShownLine] = []
    verdicts: dict[str, CallVerdict] = {}
    while len(lines) < MOST:
        part = await log.read(lines[-1].line if lines else 0, limit=_BATCH)
        lines += part.lines
        verdicts |= part.verdicts
        if not part.lines or part.ended:
            return lines, verdicts, False
    return lines, verdicts, True


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
