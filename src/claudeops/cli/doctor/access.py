"""Checks of what the daemon connects to: the model API, the meter's way to it, the database, another daemon."""

from __future__ import annotations

import email.utils
import http.client
import ipaddress
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from claudeops import __version__
from claudeops.app.meter import upstream
from claudeops.app.wiring import model_access
from claudeops.cli.doctor.finding import DoctorContext, Finding, ModelAnswer, doubtful, failed, failed_with, fine
from claudeops.cli.reply import ErrorKind, Exit
from claudeops.domain.owner import OF_A_SITE
from claudeops.domain.spending.prices import AS_OF, concrete, price_of
from claudeops.engine.daemon.liveness import STATUS_FILE, look
from claudeops.engine.meter.connections import ModelApi
from claudeops.engine.owners import alive
from claudeops.errors import ClaudeopsError, ConfigurationError, DatabaseUnavailableError
from claudeops.harness.protocol import CredentialKind
from claudeops.settings import Settings, require_credentials
from claudeops.store.locks import check_database, is_claimed
from claudeops.store.reading import opened
from claudeops.store.reading.nodes import SILENT_SECONDS, NodeEntry, listed
from claudeops.text.escapes import visible

SECONDS: Final = 10.0  # for the model API to answer

_OWN_ADDRESS: Final = "https://api.anthropic.com"
_REFUSED: Final = (401, 403)
_UNSUPPORTED: Final = (404, 405, 501)
_OK: Final = 200
_REDIRECT: Final = range(300, 400)
# Both need a valid key, and neither is charged: https://docs.anthropic.com/en/api/models-list and
# https://docs.anthropic.com/en/api/messages-count-tokens. Gateways often support only one of them.
_MODELS: Final = "/v1/models?limit=1"
_COUNT: Final = "/v1/messages/count_tokens"

_METERED = "claude"


# --- the listener ------------------------------------------------------------------------------------


async def listener(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that senders of alerts can reach the daemon, or that it listens nowhere on purpose."""
    if (lacking := _lacks_passkeys(settings)) is not None:
        return lacking
    if not settings.listener.enabled:
        return fine("Switched off: no alerts, heartbeats or questions about health come in.")
    place = f"port {settings.listener.port} on {settings.listener.host}"
    if (refused := _unbound(settings)) is not None and not is_claimed(settings.places.database_url):
        return doubtful(
            f"The daemon could not listen: {place} cannot be used ({refused}).",
            "Set CLAUDEOPS_DASHBOARD_PORT or CLAUDEOPS_DASHBOARD_HOST to another one, or CLAUDEOPS_LISTENER=off.",
        )
    if not ipaddress.ip_address(settings.listener.host).is_loopback and not settings.listener.public_hosts:
        return doubtful(
            f"Others reach {place}, but only by its address: no name is known.",
            "Name it in CLAUDEOPS_PUBLIC_URL; calls by another name are refused.",
        )
    if _is_in_the_clear(settings):
        return doubtful(
            f"Others reach {place} by plain HTTP: people from another machine may only look, and log in without a "
            "password.",
            "Put a proxy before it that speaks TLS, and name its https address in CLAUDEOPS_PUBLIC_URL; where the "
            "network is trusted, set CLAUDEOPS_DASHBOARD_INSECURE=true.",
        )
    return fine(
        f"The daemon can listen to {place}; every program needs a token (`claudeops token list`), and every person a "
        "login (`claudeops login-link`)."
    )


def _lacks_passkeys(settings: Settings) -> Finding | None:
    """Return what keeps people from signing the approvals that demand it; ``None``: nothing."""
    if not settings.approvals.passkey_tiers:
        return None
    if not (settings.listener.enabled and settings.listener.dashboard):
        return doubtful(
            "CLAUDEOPS_APPROVAL_PASSKEY demands passkeys, and there are no pages to use one on: no yes can be given.",
            "Set CLAUDEOPS_LISTENER=on and CLAUDEOPS_DASHBOARD=on.",
        )
    if find_spec("webauthn") is None:
        return doubtful(
            "CLAUDEOPS_APPROVAL_PASSKEY demands passkeys, and the library webauthn is missing: no yes can be given.",
            "Install claudeops[passkeys].",
        )
    return None


def _is_in_the_clear(settings: Settings) -> bool:
    """Return whether people on other machines can have no connection that counts as encrypted."""
    is_outside = not ipaddress.ip_address(settings.listener.host).is_loopback
    return (
        is_outside
        and settings.listener.dashboard
        and not settings.listener.insecure
        and not settings.listener.tls_hosts
    )


def _unbound(settings: Settings) -> str | None:
    """Return why the listener's port cannot be bound; ``None``: it can."""
    host = settings.listener.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the listener does
            tried.bind((host, settings.listener.port))
    except OSError as error:
        return error.strerror or str(error)
    return None


# --- credentials -------------------------------------------------------------------------------------


class SharedRequest(msgspec.Struct):
    """Makes one free request to the model API, however many checks want its answer."""

    settings: Settings
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _asked: bool = False
    _answer: ModelAnswer | None = None

    async def __call__(self) -> ModelAnswer | None:
        """Return the answer; ``None`` when no tier needs the API, or no credentials are set."""
        async with self._turn:
            needed = any(tier.asks_messages_api for tier in self.settings.tiers)
            if not self._asked and needed and _lacking(self.settings) is None:
                self._answer = await anyio.to_thread.run_sync(_ask, self.settings, abandon_on_cancel=True)
            self._asked = True
        return self._answer


async def credentials(case: DoctorContext, settings: Settings) -> Finding:
    """Check that the model API accepts our credentials."""
    if (lacking := _lacking(settings)) is not None:
        return failed_with(lacking, kind=ErrorKind.AUTH)
    answer = await case.answer()
    if answer is None:
        return fine("No tier uses the Messages API with our credentials, so none are needed.")
    return _judged(answer, settings)


def _judged(answer: ModelAnswer, settings: Settings) -> Finding:
    place = "The endpoint in ANTHROPIC_BASE_URL" if settings.access.base_url is not None else _OWN_ADDRESS
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
            f"Set {_variable(settings)} to valid ones.",
            kind=ErrorKind.AUTH,
        )
    if answer.status in _REDIRECT:
        return failed(
            f"{place} answers with a redirect ({answer.status}), and credentials are sent to no other address.",
            "Set ANTHROPIC_BASE_URL to the final address.",
        )
    if answer.status == _OK:
        return fine(f"{place} accepts the credentials ({answer.asked}).")
    return doubtful(
        f"{place} answers {answer.status} to {answer.asked}, which does not show whether the credentials are valid.",
        "Try again in a minute; if it stays so, ask the operator of that endpoint.",
    )


def _lacking(settings: Settings) -> str | None:
    """Return the sentence that says that no credentials are set, or ``None``."""
    try:
        require_credentials(settings)
    except ConfigurationError as error:
        return str(error)
    return None


def _variable(settings: Settings) -> str:
    return "CLAUDE_CODE_OAUTH_TOKEN" if settings.access.oauth_token is not None else "ANTHROPIC_API_KEY"


def _ask(settings: Settings) -> ModelAnswer:
    opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=_tls(settings)))
    answer = _call(opener, settings, "GET", _MODELS, None)
    if answer.status not in _UNSUPPORTED:
        return answer
    body = {"model": settings.tiers[0].model, "messages": [{"role": "user", "content": "hello"}]}
    return _call(opener, settings, "POST", _COUNT, json.dumps(body).encode())


def _call(
    opener: urllib.request.OpenerDirector, settings: Settings, method: str, path: str, body: bytes | None
) -> ModelAnswer:
    base = settings.access.base_url or _OWN_ADDRESS
    asked = f"{method} {path.partition('?')[0]}"
    request = urllib.request.Request(base + path, method=method, data=body, headers=_headers(settings))  # noqa: S310 - the settings take http and https only
    try:
        with opener.open(request, timeout=SECONDS) as response:
            return _answer(asked, response.status, response.headers.get("date"))
    except urllib.error.HTTPError as error:
        error.close()
        return _answer(asked, error.code, error.headers.get("date"))
    except urllib.error.URLError as error:
        return ModelAnswer(asked=asked, status=None, error=str(error.reason))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return ModelAnswer(asked=asked, status=None, error=str(error) or type(error).__name__)


def _answer(asked: str, status: int, date: str | None) -> ModelAnswer:
    try:
        server_date = None if date is None else email.utils.parsedate_to_datetime(date)
    except ValueError:
        server_date = None
    if server_date is not None and server_date.tzinfo is None:
        server_date = server_date.replace(tzinfo=UTC)
    return ModelAnswer(asked=asked, status=status, date=server_date, heard_at=datetime.now(UTC))


def _headers(settings: Settings) -> dict[str, str]:
    access = model_access(settings)
    common = {
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "user-agent": f"claudeops/{__version__}",
    }
    if access.credential is CredentialKind.OAUTH_TOKEN:
        return {**common, "authorization": f"Bearer {access.secret}", "anthropic-beta": "oauth-2025-04-20"}
    return {**common, "x-api-key": access.secret or ""}


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    # The CLI trusts these too; OpenSSL itself reads SSL_CERT_FILE and SSL_CERT_DIR.
    if (more := settings.environment.inherited.get("NODE_EXTRA_CA_CERTS")) is not None:
        context.load_verify_locations(cafile=more)
    return context


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the request carries a key."""

    def redirect_request(self, *_: object) -> None:
        """Return ``None``: there is no further request."""


# --- meter, database and daemon ----------------------------------------------------------------------


async def meter(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the meter is on, has usable proxy and certificates, and knows the price of every model."""
    models = [tier.model for tier in settings.tiers if tier.harness == _METERED]
    if not models:
        return fine("No tier runs on a CLI whose model calls the meter can count.")
    if not settings.cell.meter:
        return doubtful(
            "CLAUDEOPS_METER switches it off: model calls are not counted one by one, nor limited by budgets.",
            "Unset it.",
        )
    try:
        async with ModelApi(upstream(settings)):
            pass  # proxy and certificates are usable
    except ConfigurationError as error:
        return failed_with(error)
    without = [model for model in models if (name := concrete(model)) is not None and price_of(name) is None]
    if without:
        return doubtful(
            f"There is no price for {', '.join(dict.fromkeys(without))} (prices of {AS_OF}): the cost of its sessions "
            "is unknown, and budgets count it as the most expensive model.",
            "Check the spelling; a newer claudeops may know the model.",
        )
    return fine(f"Every model call is counted and limited, at the prices of {AS_OF}.")


async def database(_case: DoctorContext, settings: Settings) -> Finding:
    """Check that the database can be written, leaving nothing behind, and has the tables of this version."""
    try:
        found = await anyio.to_thread.run_sync(
            check_database, settings.places.database_url, settings.places.state_dir, abandon_on_cancel=True
        )
    except DatabaseUnavailableError as error:
        return failed(
            _sentence(error),
            "Check what else uses it, whether its disk is full, and whether its server runs.",
            sysexit=Exit.UNAVAILABLE,
            kind=ErrorKind.RUNTIME,
        )
    except ClaudeopsError as error:
        return failed_with(_sentence(error), kind=ErrorKind.RUNTIME)
    if found.revision is None:
        return fine("It does not exist yet, or is empty; the daemon creates it at its first start.")
    if found.revision != found.head:
        return fine(f"Revision {found.revision}; at its start the daemon migrates it to {found.head}, after a backup.")
    return fine(f"Writable, at revision {found.head}.")


async def daemon(_case: DoctorContext, settings: Settings) -> Finding:
    """Check whether a daemon runs here, what the others of a fleet have otherwise, and who else holds the database."""
    found = look(settings.places.state_dir / STATUS_FILE, alive=alive, monotonic=time.monotonic())
    if found.status is not None and not found.lives:
        return doubtful(found.says, "Read its log, then restart it.")
    if settings.node.in_fleet and (about := await anyio.to_thread.run_sync(_fault_of_fleet, settings)) is not None:
        return about
    if found.lives:
        return fine(found.says)
    try:
        taken = await anyio.to_thread.run_sync(is_claimed, settings.places.database_url)
    except DatabaseUnavailableError:
        taken = False  # the check of the database reports it
    if taken and settings.node.in_fleet:
        return fine("No daemon runs here; others work on this database (`claudeops list-nodes`).")
    if taken:
        return failed(
            "A daemon with another state directory uses this database.",
            "Stop it, or give this one its own CLAUDEOPS_DATABASE_URL and CLAUDEOPS_STATE_DIR; on PostgreSQL daemons "
            "share a database where all of them have CLAUDEOPS_DISPATCHER=procrastinate.",
            sysexit=Exit.TRY_LATER,
            kind=ErrorKind.RUNTIME,
        )
    return fine("No daemon runs here.")


def _fault_of_fleet(settings: Settings) -> Finding | None:
    """Return what is wrong with the daemons that share the database; ``None``: nothing, or it cannot be read."""
    try:
        with opened(settings.places.database_url) as connection:
            nodes = listed(connection, now=datetime.now(UTC))
    except ClaudeopsError:
        return None  # the check of the database reports it
    silent = [f"{_named(one)} ({one.silent_s:.0f} s)" for one in nodes if one.silent_s >= SILENT_SECONDS]
    if silent:
        return doubtful(
            f"Nodes that share this database show no sign of life: {', '.join(silent)}.",
            "Read their logs; what a dead one ran is taken over a minute after its last sign.",
        )
    differs = [f"{_named(one)} ({', '.join(each)})" for one in nodes if (each := _differing(one, nodes[0]))]
    if differs:
        return doubtful(
            f"Nodes do not have the same as {_named(nodes[0])}: {', '.join(differs)}.",
            "Give all of them the same version, settings and files; `claudeops list-nodes` compares them.",
        )
    return None


def _differing(one: NodeEntry, first: NodeEntry) -> list[str]:
    """Return what a daemon should have as the first one; another site has other services."""
    return [name for name in one.differs if one.site == first.site or name not in OF_A_SITE]


def _named(one: NodeEntry) -> str:
    return visible(one.node or f"pid {one.pid}")


def _sentence(error: ClaudeopsError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}"
