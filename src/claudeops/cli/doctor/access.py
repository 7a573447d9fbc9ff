"""Whether the model API takes our credentials: one call that costs nothing."""

from __future__ import annotations

import email.utils
import http.client
import importlib.metadata
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from claudeops.app_kit import model_access
from claudeops.cli.doctor.values import Finding, doubtful, failed, failed_with, fine
from claudeops.cli.envelope import ErrorKind
from claudeops.cli.exit_codes import Exit
from claudeops.errors import ConfigurationError
from claudeops.harness.protocol import CredentialKind
from claudeops.settings import require_credentials

if TYPE_CHECKING:
    from claudeops.cli.doctor.values import Case
    from claudeops.settings import Settings

SECONDS: Final = 10.0

_OWN_ADDRESS: Final = "https://api.anthropic.com"
_REFUSED: Final = (401, 403)
_NOT_KNOWN: Final = (404, 405, 501)
_OK: Final = 200
_REDIRECT: Final = range(300, 400)
# A key opens both, and neither is charged: https://docs.anthropic.com/en/api/models-list and
# https://docs.anthropic.com/en/api/messages-count-tokens. Gateways often know but one of them.
_MODELS: Final = "/v1/models?limit=1"
_COUNT: Final = "/v1/messages/count_tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back."""

    asked: str  # method and path
    status: int | None  # None: nothing
    error: str = ""  # why nothing came back
    date: datetime | None = None  # the clock of whoever answered, UTC
    heard_at: datetime | None = None  # ours at that moment


@dataclass(slots=True)
class AskedOnce:
    """Asks the model API for something free, once, however many want to know."""

    settings: Settings
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _asked: bool = False
    _answer: Answer | None = None

    async def __call__(self) -> Answer | None:
        """Return the answer; ``None`` when no tier needs one, or there is nothing to ask with."""
        async with self._turn:
            needed = any(tier.asks_messages_api for tier in self.settings.tiers)
            if not self._asked and needed and _lacking(self.settings) is None:
                self._answer = await anyio.to_thread.run_sync(_ask, self.settings, abandon_on_cancel=True)
            self._asked = True
        return self._answer


async def credentials(case: Case, settings: Settings) -> Finding:
    """Judge what the model API answered."""
    if (lacking := _lacking(settings)) is not None:
        return failed_with(lacking, kind=ErrorKind.AUTH)
    answer = await case.answer()
    if answer is None:
        return fine("No tier asks the Messages API, so no credentials of ours are needed.")
    return _judged(answer, settings)


def _judged(answer: Answer, settings: Settings) -> Finding:
    place = "The endpoint in ANTHROPIC_BASE_URL" if settings.anthropic_base_url is not None else _OWN_ADDRESS
    if answer.status is None:
        return failed(
            f"{place} cannot be reached ({answer.error}).",
            "Check the network, the proxy variables and ANTHROPIC_BASE_URL.",
            sysexit=Exit.UNAVAILABLE,
            kind=ErrorKind.RUNTIME,
        )
    if answer.status in _REFUSED:
        return failed(
            f"{place} refuses the credentials ({answer.status} to {answer.asked}).",
            f"Set {_variable(settings)} to ones that are valid.",
            kind=ErrorKind.AUTH,
        )
    if answer.status in _REDIRECT:
        return failed(
            f"{place} answers with a redirect ({answer.status}), and credentials are sent nowhere but there.",
            "Set ANTHROPIC_BASE_URL to the address itself.",
        )
    if answer.status == _OK:
        return fine(f"{place} accepts the credentials ({answer.asked}).")
    return doubtful(
        f"{place} answers {answer.status} to {answer.asked}, which does not say whether the credentials are good.",
        "Ask again in a minute; if it stays so, ask whoever runs that endpoint.",
    )


def _lacking(settings: Settings) -> str | None:
    """Return the sentence that says that there are no credentials, or ``None``."""
    try:
        require_credentials(settings)
    except ConfigurationError as error:
        return str(error)
    return None


def _variable(settings: Settings) -> str:
    return "CLAUDE_CODE_OAUTH_TOKEN" if settings.oauth_token is not None else "ANTHROPIC_API_KEY"


def _ask(settings: Settings) -> Answer:
    opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=_tls(settings)))
    answer = _call(opener, settings, "GET", _MODELS, None)
    if answer.status not in _NOT_KNOWN:
        return answer
    question = {"model": settings.tiers[0].model, "messages": [{"role": "user", "content": "hello"}]}
    return _call(opener, settings, "POST", _COUNT, json.dumps(question).encode())


def _call(
    opener: urllib.request.OpenerDirector, settings: Settings, method: str, path: str, body: bytes | None
) -> Answer:
    base = settings.anthropic_base_url or _OWN_ADDRESS
    asked = f"{method} {path.partition('?')[0]}"
    request = urllib.request.Request(base + path, method=method, data=body, headers=_headers(settings))  # noqa: S310 - the settings take http and https only
    try:
        with opener.open(request, timeout=SECONDS) as response:
            return _answer(asked, response.status, response.headers.get("date"))
    except urllib.error.HTTPError as error:
        error.close()
        return _answer(asked, error.code, error.headers.get("date"))
    except urllib.error.URLError as error:
        return Answer(asked=asked, status=None, error=str(error.reason))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(asked=asked, status=None, error=str(error) or type(error).__name__)


def _answer(asked: str, status: int, date: str | None) -> Answer:
    try:
        told = None if date is None else email.utils.parsedate_to_datetime(date)
    except ValueError:
        told = None
    if told is not None and told.tzinfo is None:
        told = told.replace(tzinfo=UTC)
    return Answer(asked=asked, status=status, date=told, heard_at=datetime.now(UTC))


def _headers(settings: Settings) -> dict[str, str]:
    access = model_access(settings)
    common = {
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "user-agent": f"claudeops/{importlib.metadata.version('claudeops')}",
    }
    if access.credential is CredentialKind.OAUTH_TOKEN:
        return {**common, "authorization": f"Bearer {access.secret}", "anthropic-beta": "oauth-2025-04-20"}
    return {**common, "x-api-key": access.secret or ""}


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    # The CLI trusts these besides; OpenSSL itself knows SSL_CERT_FILE and SSL_CERT_DIR.
    if (more := settings.inherited_env.get("NODE_EXTRA_CA_CERTS")) is not None:
        context.load_verify_locations(cafile=more)
    return context


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the request carries a key."""

    def redirect_request(self, *_: object) -> None:
        """Return no further request."""
