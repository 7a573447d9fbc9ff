"""The kind `http`: status, time, text or JSON, certificate; redirects are followed only where looks may go anyway."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import orjson

from claudeops.domain.probes.probe import HttpLook, Saw
from claudeops.engine.probes.exchange import MOST_BODY, ExchangeAnswer, ProbeQuestion, Url, ask, url_of
from claudeops.engine.probes.results import Attempt, LookResult, blind, down, quote
from claudeops.engine.probes.stream import Means
from claudeops.policy.reach import refuse_url
from claudeops.structs import replace
from claudeops.text import regex

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_LEAST_UP, _MOST_UP = 200, 399
_VARIABLE: Final = regex.Pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER_NAME: Final = regex.Pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_INDEX: Final = regex.Pattern(r"0|[1-9][0-9]{0,8}")
_KEPT_URLS: Final = 4096  # of probes, in the parts that a request needs
_MISSING: Final = object()


async def look_http(look: HttpLook, means: Means, attempt: Attempt) -> LookResult:
    """Ask for a URL and hold the answer against what is expected; raises `LookFailedError`."""
    headers = filled(look.headers, means.environment)
    # A service may repeat what it was sent: with a secret in the request, no word of the answer becomes a detail.
    quotes = headers == look.headers
    answer, stopped = await _followed(look, headers, means, attempt, quotes=quotes)
    return _judged(look, answer, stopped, means, attempt, quotes=quotes)


def filled(headers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the values of the variables that they name; raises `LookFailedError`, without the values."""
    found = {}
    for name, value in headers.items():
        whole = value
        for found_name in _VARIABLE.finditer(value):
            variable = str(found_name[1])
            if variable not in environment:
                raise blind(f"the header {name} needs {variable}, which is not in the daemon's environment")
            whole = whole.replace(f"${{{variable}}}", environment[variable])
        if not _HEADER_NAME.fullmatch(name) or not whole.isascii() or (whole and not whole.isprintable()):
            raise blind(f"the header {quote(name)} is none that HTTP can carry: printable ASCII only")
        found[name] = whole.strip()
    return found


async def _followed(
    look: HttpLook, headers: Mapping[str, str], means: Means, attempt: Attempt, *, quotes: bool
) -> tuple[ExchangeAnswer, str]:
    """Return the last answer, and why a redirect in it was not followed, if it is one."""
    url = _askable(look.url)
    first, own_host, worst = url.origin, url.host.lower(), None
    for followed in range(look.redirects + 1):
        given = headers if url.origin == first else {}  # what is meant for one server is not for another
        question = ProbeQuestion(target=url.target, authority=url.authority, method=look.method, headers=given)
        answer = await ask(url, means, attempt, verify=look.verify, question=question)
        if worst is None or (answer.certificate and answer.certificate.not_after < worst.not_after):
            worst = answer.certificate
        answer = replace(answer, certificate=worst)
        location = answer.headers.get("location", "")
        if answer.status not in _REDIRECTS or answer.status in look.status or not location or not look.redirects:
            return answer, ""
        following = url_of(location, base=_absolute(url))
        if following is None:
            where = quote(location) if quotes else "something"
            raise down(f"it redirects to {where}, which is no URL that can be asked")
        if (why := refuse_url(_absolute(following))) is not None:
            raise down(f"it redirects to an address that is never asked: {why if quotes else 'not followed'}")
        if following.host.lower() != own_host and following.host.lower() not in means.hosts():
            where = quote(following.host) if quotes else "another host"
            return answer, f"redirects to {where}, which is outside of the estate: not followed"
        url = following
        attempt.begin(f"following redirect {followed + 1}")
    raise down(f"it redirects more than {look.redirects} times")


@lru_cache(maxsize=_KEPT_URLS)
def _askable(text: str) -> Url:
    url = url_of(text)
    if url is None:  # not shown: it may hold a password
        raise blind("its URL is none that can be asked: write http(s)://host:port/path, credentials in headers")
    if (why := refuse_url(_absolute(url))) is not None:
        raise blind(why)
    return url


def _absolute(url: Url) -> str:
    """Return a URL as a text; without its query, which may hold a token."""
    return f"{url.scheme}://{url.authority}{url.target.partition('?')[0]}"


def _judged(
    look: HttpLook, answer: ExchangeAnswer, stopped: str, means: Means, attempt: Attempt, *, quotes: bool
) -> LookResult:
    said = f"answered {answer.status}" + (f" and {stopped}" if stopped else "")
    if not (answer.status in look.status if look.status else _LEAST_UP <= answer.status <= _MOST_UP):
        return LookResult(Saw.DOWN, said + (f", expected {_listed(look.status)}" if look.status else ""))
    if (wrong := _unexpected(look, answer, attempt, quotes=quotes)) is not None:
        return LookResult(Saw.DOWN, f"{said}, but {wrong}")
    worries = []
    now = means.clock.now()
    if answer.certificate is not None:
        days = answer.certificate.days_left(now)
        if days < 0 or days < look.expires_within:
            worries.append(answer.certificate.told(now))
    took = attempt.seconds
    if look.slower_than is not None and took > look.slower_than:
        worries.append(f"it took {took:.2f} s, more than {look.slower_than:g} s")
    if worries:
        return LookResult(Saw.DEGRADED, f"{said}, but {' and '.join(worries)}")
    return LookResult(Saw.UP, said)


def _listed(status: tuple[int, ...]) -> str:
    return " or ".join(map(str, status))


def _unexpected(look: HttpLook, answer: ExchangeAnswer, attempt: Attempt, *, quotes: bool) -> str | None:
    """Return what is wrong with a body, or None; raises `LookFailedError` for one that is not JSON."""
    if look.text and (wrong := _without(look.text, answer)) is not None:
        return wrong
    if not look.json:
        return None
    document = answer.json(attempt, quotes=quotes)
    for pointer, wanted in look.json.items():
        found = resolve(document, pointer)
        if found is _MISSING:
            return f"its JSON has nothing at {quote(pointer)}"
        if not _equal(found, wanted):
            told = f"{quote(_brief(found))} instead of {quote(_brief(wanted))}" if quotes else "another value"
            return f"its JSON has {told} at {quote(pointer)}"
    return None


def _without(text: str, answer: ExchangeAnswer) -> str | None:
    if answer.encoding:
        return f"its body is compressed ({quote(answer.encoding)}) unasked, so no text can be looked for"
    # Without an encoding that both sides agree upon: the two that are left in use.
    spellings = {text.encode(), text.encode("latin-1", "ignore") or text.encode()}
    if any(spelling in answer.body for spelling in spellings):
        return None
    within = f" within its first {MOST_BODY // 1024} KiB" if answer.is_cut else ""
    return f"without the text {quote(text)}{within}"


def resolve(document: object, pointer: str) -> object:
    """Return what a JSON pointer (RFC 6901) leads to, or a value that nothing is equal to."""
    if not pointer:
        return document
    if not pointer.startswith("/"):
        return _MISSING
    for step in pointer[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list) and _INDEX.fullmatch(key) and int(key) < len(document):
            document = document[int(key)]
        else:
            return _MISSING
    return document


def _equal(found: object, wanted: object) -> bool:
    """Whether two values are the same in JSON: 1 and 1.0 are, 1 and true are not."""
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def _brief(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return value if isinstance(value, str) else orjson.dumps(value).decode()
