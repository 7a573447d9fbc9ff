"""The kinds of values in command rules, each with its check and, for actions, the service that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.network import forbidden_hosts
from claudeops.policy import paths, reach
from claudeops.policy.identity import pod_owners, refuse_id
from claudeops.policy.programs import scripts, statements
from claudeops.policy.shell.language import Given, Glob, Literal, StreamFile, Text, Word, shown
from claudeops.text import regex
from claudeops.text.redact import has_shape

LONGEST_SLEEP: Final = 60.0  # seconds
STDIN: Final = "-"  # in the place of a file

_NAME: Final = regex.Pattern(r"[A-Za-z0-9_][A-Za-z0-9_.@:/=+-]*")
_NAMES: Final = regex.Pattern(r"[\w,.-]+")
_CONTAINER: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SWARM_ID: Final = regex.Pattern(r"[a-z0-9]{1,25}")  # or the beginning of one
_UNIT: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.@:\\-]*")
_WORKLOAD: Final = regex.Pattern(
    r"(?:deployments?|deploy|statefulsets?|sts|daemonsets?|ds)(?:\.apps)?/([a-z0-9][a-z0-9.-]*)"
)
_WORKLOAD_TYPE: Final = regex.Pattern(r"(?:deployments?|deploy|statefulsets?|sts|daemonsets?|ds)(?:\.apps)?")
_KUBERNETES_NAME: Final = regex.Pattern(r"[a-z0-9][a-z0-9.-]*")
_SIZE: Final = regex.Pattern(r"[+-]?\d+(?:[kKMGTPEb]i?B?)?")
_DURATION: Final = regex.Pattern(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y|min|hours?|days?)?")
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TARGET: Final = regex.Pattern(r"(?:([A-Za-z_][\w.-]*)@)?([^@/:]+|\[[^]]+\])")
_SECRET_RESOURCE: Final = regex.Pattern(r"(?i)(?:^|[,/])[^,/]*secret[^,/]*")
_HEADER: Final = regex.Pattern(
    r"(?i)Accept(?:-[A-Z]+)?|Content-Type|User-Agent|Cache-Control|Pragma|Host|Origin|Referer|Range|If-[A-Z-]+|Date|DNT"
    r"|Access-Control-Request-[A-Z]+|Forwarded|Via|traceparent|X-[A-Z0-9-]+"
)
_STEERING: Final = regex.Pattern(r"(?i)X-(?:HTTP-)?Method.*|X-Original-.*|X-Rewrite-.*|X-Forwarded-(?:Host|Server)")
_CREDENTIALS: Final = regex.Pattern(
    r"(?i)(?:Proxy-)?Authorization|Cookie|(?:[A-Z0-9-]+-)?(?:Token|Secret|Password|Api-?Key|Access-Key|Auth|Auth-Key)"
)
_MOST_SHOWN: Final = 8  # places in a sentence
_DEVICE: Final = regex.Pattern(r"/dev/[A-Za-z0-9/_-]+")

_ROLE: Final = regex.Pattern(r"(?:[A-Za-z0-9][A-Za-z0-9_-]*[_-])?(?:readonly|read_only|reader|ro|monitor|monitoring)")
_CLOUD_WORD: Final = regex.Pattern(r"[A-Za-z0-9_][A-Za-z0-9_.,:=@*+-]*(?:/[A-Za-z0-9_.,:=@*+-]+)*")
_REDIS_WORD: Final = regex.Pattern(r"[A-Za-z0-9_*+(][A-Za-z0-9_.,:@*/+({}-]*")
_CONNECTION: Final = regex.Pattern(r"([A-Za-z0-9.-]+):(\d{1,5}):([A-Za-z0-9.-]+):(\d{1,5})")
_DIG_WORD: Final = regex.Pattern(
    r"\+(?:no)?(?:short|all|answer|question|authority|additional|comments|stats|cmd|multiline|trace|tcp|vc|recurse|rec|dnssec"
    r"|nsid|identify|ttlid|ttlunits|class|qr|search|cdflag|adflag|edns|fail|besteffort|crypto|rrcomments|yaml|nssearch)"
    r"|\+(?:tries|time|timeout|retry|bufsize|ndots|edns)=\d{1,5}"
    r"|(?i:in|ch|hs|any|a|aaaa|afsdb|axfr|caa|cdnskey|cds|cname|dname|dnskey|ds|hinfo|https|key|loc|mx|naptr|ns|nsec|nsec3"
    r"|nsec3param|openpgpkey|ptr|rp|rrsig|sig|smimea|soa|spf|srv|sshfp|svcb|tlsa|txt|uri)"
)
"""Words of dig that are neither a name nor a server. ``+domain=`` would add to every name."""

_PAGE: Final = regex.Pattern(r"(?:https?://)?[^/?#@]+(?:/[A-Za-z0-9_-]+){0,4}/?")
NOWHERE: Final = "::127.0.0.1:9"
"""The value of curl's ``--connect-to`` for every host not named before: the discard port of this machine."""


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a check may need to know besides the word itself."""

    place: paths.PathContext
    deep: bool = False  # everything below the paths is read
    searched: paths.Searched = msgspec.field(default_factory=paths.Searched)  # the names that are read in that case


Check: TypeAlias = Callable[[str, str, CheckContext], str | None]
"""Returns why a text is not a value of a kind here, or None; given the text, the kind's parameter and the setting."""


def _free(_text: str, _parameter: str, _setting: CheckContext) -> str | None:
    return None


def _format(text: str, _parameter: str, _setting: CheckContext) -> str | None:
    return None if text.startswith("+") else "write a +FORMAT"


def _archive(text: str, _parameter: str, setting: CheckContext) -> str | None:
    if regex.search(r"[:*?\[\\]", text):  # tar reads a colon as a host, unzip the others as a pattern
        return f"{text}: write the name of one archive, without : * ? [ and backslashes"
    return _file(text, "", setting)


def _expression(text: str, parameter: str, _setting: CheckContext) -> str | None:
    matches = regex.fullmatch(parameter, text)
    return None if matches else f"{text!r} is not one of the values allowed here"


def _choice(text: str, parameter: str, _setting: CheckContext) -> str | None:
    allowed = text in parameter.split(",")
    return None if allowed else f"{text!r} is not allowed here: only {parameter}"


def _integer(text: str, parameter: str, _setting: CheckContext) -> str | None:
    if not regex.fullmatch(r"[+-]?\d{1,9}", text):
        return f"{text!r} is not a plain number"
    low, _, high = parameter.rpartition("-")
    if (high and int(text) > int(high)) or (low and int(text) < int(low)):
        return f"{text} is out of bounds: {parameter} is allowed"
    return None


def _matching(pattern: regex.Pattern[str], what: str) -> Check:
    def matches(text: str, _parameter: str, _setting: CheckContext) -> str | None:
        return None if pattern.fullmatch(text) else f"{text!r} is not a plain {what}"

    return matches


def _sleep(text: str, _parameter: str, _setting: CheckContext) -> str | None:
    found = _DURATION.fullmatch(text)
    if found is None:
        return f"{text!r} is not a plain time"
    if float(found[1]) * _SECONDS.get(found[2] or "", LONGEST_SLEEP) > LONGEST_SLEEP:
        return f"sleep at most {LONGEST_SLEEP:.0f} seconds"
    return None


def _file(text: str, _parameter: str, setting: CheckContext) -> str | None:
    if text == STDIN:  # to a few programs it is a file of this name
        return paths.readable(text, setting.place) if setting.place.local else None
    if setting.deep:
        return paths.searchable(text, setting.place, setting.searched)
    return paths.readable(text, setting.place) or paths.refuse_other_than_file(text, setting.place)


def _placed(judge: Callable[[str, paths.PathContext], str | None]) -> Check:
    return lambda text, _parameter, setting: judge(text, setting.place)


def _sink(text: str, _parameter: str, _setting: CheckContext) -> str | None:
    allowed = text in {"-", "/dev/null", "/dev/stdout", "/dev/stderr"}
    return None if allowed else f"{text}: output goes to the screen or to /dev/null, not to a file"


def _url(text: str, _parameter: str, setting: CheckContext) -> str | None:
    return reach.refuse_url(text) or setting.place.reach.refuse_url(text)


def _page(text: str, _parameter: str, setting: CheckContext) -> str | None:
    plain = _PAGE.fullmatch(text)
    reason = f"{text[:80]!r} could name another host, to be redirected to: write a plain path, without dots or a query"
    return _url(text, "", setting) if plain else reason


def _dig(text: str, _parameter: str, setting: CheckContext) -> str | None:
    """Check a word of dig: a name or an address to look up, ``@SERVER``, a type, ``+short`` and the like."""
    return None if _DIG_WORD.fullmatch(text) else _refuse_host(text.removeprefix("@"), setting)


def _host(text: str, _parameter: str, setting: CheckContext) -> str | None:
    return _refuse_host(text, setting)


def _host_port(text: str, _parameter: str, setting: CheckContext) -> str | None:
    return _refuse_host(regex.sub(r":(?:\d{1,5}|[a-z]+)$", "", text), setting)


def _target(text: str, _parameter: str, setting: CheckContext) -> str | None:
    found = _TARGET.fullmatch(text)
    if found is None:
        return f"{text!r} is not a plain [user@]host"
    return _refuse_host(found[2], setting)


def _header(text: str, _parameter: str, setting: CheckContext) -> str | None:
    name, _, value = text.partition(":")
    if not regex.fullmatch(r"[A-Za-z0-9-]+(?::[^\r\n]*|;)", text):  # curl sends ``Host;x`` as ``Host:x``
        return f"{text!r} is not a plain header"
    if (added := setting.place.scope.headers.get(name.rstrip(";").lower())) is not None:
        return f"{name}: the daemon adds this header, for {', '.join(added[:_MOST_SHOWN])}: ask there without it"
    if _CREDENTIALS.fullmatch(name.rstrip(";")) or has_shape(value):
        return (
            f"{name}: a command carries no credentials: leave it out, and report that they are needed; whoever runs "
            "this daemon can have it add the header for a host (CLAUDEOPS_HEADERS_PATH)"
        )
    if not _HEADER.fullmatch(name.rstrip(";")) or _STEERING.fullmatch(name.rstrip(";")):
        return f"{name}: this header could make another request of it, or carry credentials: leave it out"
    # A proxy forwards a request to the host in this header.
    return _url(value.strip(), "", setting) if name.lower() == "host" and value.strip() else None


def _write_out(text: str, _parameter: str, _setting: CheckContext) -> str | None:
    harmless = not text.startswith("@") and "output{" not in text
    return None if harmless else "-w may neither read nor write a file"


def _program(refuse: Callable[[str], str | None]) -> Check:
    return lambda text, _parameter, _setting: refuse(text)


def _properties(text: str, _parameter: str, _setting: CheckContext) -> str | None:
    lowered = text.lower()
    plain = all(name.isascii() and name.isalpha() for name in lowered.split(","))
    hidden = "environ" in lowered or "credential" in lowered
    reason = f"{text!r}: name properties; neither Environment nor credentials are ever shown"
    return None if plain and not hidden else reason


def _resource(text: str, _parameter: str, _setting: CheckContext) -> str | None:
    if _SECRET_RESOURCE.search(text):
        return f"{text}: secrets of the cluster are never read"
    plain = _NAMES.fullmatch(text) if "," in text else _NAME.fullmatch(text)
    return None if plain else f"{text!r} is not a plain name"


def _container(text: str, _parameter: str, setting: CheckContext) -> str | None:
    if text.startswith("k8s_"):
        return f"{text} is a pod's: kubectl rollout restart deployment/NAME"
    if not _CONTAINER.fullmatch(text):
        return f"{text!r} is not a plain container name"
    return refuse_id(text, setting.place.services, f"docker compose -p PROJECT restart {text}")


def _swarm(text: str, _parameter: str, setting: CheckContext) -> str | None:
    """Check the name of a swarm's service, which may also be given by the beginning of its id."""
    if not _CONTAINER.fullmatch(text):
        return f"{text!r} is not a plain service name"
    if _SWARM_ID.fullmatch(text) and not setting.place.services.knows(text):
        return f"{text} could be the beginning of a service's id: name it in a CLAUDE-OPS.md"
    return None


def _plain(pattern: regex.Pattern[str], what: str) -> Check:
    def plain(text: str, _parameter: str, _setting: CheckContext) -> str | None:
        fits = pattern.fullmatch(text) and "://" not in text and not paths.has_secret_name(text)
        return None if fits else f"{text[:80]!r} is no {what}"

    return plain


def _connection(text: str, _parameter: str, setting: CheckContext) -> str | None:
    """Check where curl may connect: a host and port that may be asked, mapped to themselves."""
    found = _CONNECTION.fullmatch(text)
    if text == NOWHERE:
        return None
    if found is None or (found[1].lower(), found[2]) != (found[3].lower(), found[4]):
        return f"{text!r}: write HOST:PORT:HOST:PORT, the same twice, or {NOWHERE}"
    url = f"https://{found[1]}:{found[2]}/"
    reasons = (_refuse_host(found[1], setting), setting.place.reach.refuse_url(url))
    return next((reason for reason in reasons if reason and not isinstance(reason, Stranger)), reasons[0] or reasons[1])


_CHECKS: Final[dict[str, Check]] = {
    "any": _free,
    "archive": _archive,
    "ports": _matching(regex.Pattern(r"\d{1,5}(?:-\d{1,5})?"), "port"),
    "text": _free,
    "format": _format,
    "glob": _free,
    "re": _expression,
    "one": _choice,
    "int": _integer,
    "size": _matching(_SIZE, "size"),
    "duration": _matching(_DURATION, "time"),
    "sleep": _sleep,
    "word": _matching(regex.Pattern(rf"[^{regex.SPACE}-][^{regex.SPACE}]*"), "word"),
    "name": _matching(_NAME, "name"),
    "file": _file,
    "listing": _placed(paths.listable),
    "directory": _placed(paths.enterable),
    "own": _placed(paths.writable),
    "key": _placed(paths.foreign),
    "repo": _placed(paths.deployable),
    "project": _placed(paths.project),
    "sink": _sink,
    "device": _matching(_DEVICE, "device"),
    "url": _url,
    "page": _page,
    "dig": _dig,
    "host": _host,
    "hostport": _host_port,
    "target": _target,
    "header": _header,
    "writeout": _write_out,
    "awk": _program(scripts.refuse_awk),
    "sed": _program(scripts.refuse_sed),
    "jq": _program(scripts.refuse_jq),
    "yq": _program(scripts.refuse_yq),
    "template": _program(scripts.refuse_template),
    "properties": _properties,
    "resource": _resource,
    "container": _container,
    "service": _matching(_CONTAINER, "service name"),
    "swarm": _swarm,
    "stack": _matching(_CONTAINER, "name of a stack"),
    "unit": _matching(_UNIT, "unit name"),
    "workload": _matching(_WORKLOAD, "deployment/NAME"),
    "workloadtype": _matching(_WORKLOAD_TYPE, "kind of workload"),
    "workloadname": _matching(_KUBERNETES_NAME, "name"),
    "pod": _matching(regex.Pattern(r"[a-z0-9][a-z0-9.-]{0,61}"), "pod name"),  # longer ones may have lost their end
    "podref": _matching(regex.Pattern(r"(?:pods?|po)/[a-z0-9][a-z0-9.-]{0,61}"), "pod/NAME"),
    "release": _matching(_KUBERNETES_NAME, "release name"),
    "manifest": _placed(paths.deployable),
    "sql": _program(statements.refuse_sql),
    "role": _plain(_ROLE, "name of a read-only role: it ends in readonly, reader, ro or monitor"),
    "cloudword": _plain(_CLOUD_WORD, "plain value"),
    "redisword": _plain(_REDIS_WORD, "plain key or number"),
    "connection": _connection,
}

KINDS: Final = frozenset(_CHECKS)
"""The names of all kinds."""


def _as_is(text: str, _setting: CheckContext) -> tuple[str, ...]:
    return (text,)


def _pod(text: str, _setting: CheckContext) -> tuple[str, ...]:
    return pod_owners(text.rpartition("/")[2])


_SERVICES: Final[dict[str, Callable[[str, CheckContext], tuple[str, ...]]]] = {
    **dict.fromkeys(("container", "service", "swarm", "stack", "workloadname", "release"), _as_is),
    "unit": lambda text, _setting: (text.removesuffix(".service"),),
    "workload": lambda text, _setting: (text.rpartition("/")[2],),
    "pod": _pod,
    "podref": _pod,
    "manifest": lambda text, setting: (paths.deployed_name(text, setting.place),),
}

SERVICE_KINDS: Final = frozenset(_SERVICES)
"""The kinds whose values name the service of an action."""


_PLACES: Final = frozenset({"file", "archive", "listing", "directory", "own", "key", "repo", "project", "manifest"})
"""The kinds whose values are paths: they are written absolute."""


def check(kind: str, word: Word, setting: CheckContext) -> str | None:
    """Return why a word is not a value of this kind here, or None. What is no literal fits only kinds that say so."""
    name, _, parameter = kind.partition(":")
    if isinstance(word, Literal):
        return _CHECKS[name](word.text, parameter, setting)
    if isinstance(word, Glob) and name in {"file", "listing"}:  # what find finds; other patterns have become names
        # What find lists by itself, ``-ls``, a program behind it may list.
        return paths.readable_all(word.pattern, setting.place) if name == "file" else None
    fits = {Text: name == "any", Given: name == "name", StreamFile: name == "file" and not setting.deep}
    return None if fits.get(type(word), False) else _unknown(word)


def form(kind: str, text: str, setting: CheckContext) -> str:
    """Return the one text in which a value of this kind is written: a path is absolute."""
    if text == STDIN or kind.partition(":")[0] not in _PLACES:
        return text
    return paths.absolute(text, setting.place) or text


def services_of(kind: str, text: str, setting: CheckContext) -> tuple[str, ...]:
    """Return every service that a text of this kind may name; none for kinds that name no service."""
    names = _SERVICES.get(kind.partition(":")[0])
    return names(text, setting) if names else ()


def _unknown(word: Word) -> str:
    if isinstance(word, Glob):
        return f"{word.pattern} is a pattern for file names: quote it"
    return f"{shown(word)} is not known before it runs: write the value out"


def _refuse_host(host: str, setting: CheckContext) -> str | None:
    return forbidden_hosts.refuse_host(host) or setting.place.reach.refuse_host(host)
