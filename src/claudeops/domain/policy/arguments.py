"""The kinds of values in command rules, each with its check and, for actions, the service that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from claudeops.domain.estate.strangers import Stranger
from claudeops.domain.policy import paths, programs, reach, statements
from claudeops.domain.shell.values import Word, WordKind, refuse_variable
from claudeops.domain.text import regex

LONGEST_SLEEP: Final = 60.0  # seconds

_NAME: Final = regex.Pattern(r"[A-Za-z0-9_][A-Za-z0-9_.@:/=+-]*")
_CONTAINER: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CONTAINER_ID: Final = regex.Pattern(r"[0-9a-f]*\d[0-9a-f]*|[0-9a-f]{12,}")
_UNIT: Final = regex.Pattern(r"[A-Za-z0-9][A-Za-z0-9_.@:\\-]*")
_WORKLOAD: Final = regex.Pattern(
    r"(?:deployments?|deploy|statefulsets?|sts|daemonsets?|ds)(?:\.apps)?/([a-z0-9][a-z0-9.-]*)"
)
_WORKLOAD_TYPE: Final = regex.Pattern(r"(?:deployments?|deploy|statefulsets?|sts|daemonsets?|ds)(?:\.apps)?")
_KUBERNETES_NAME: Final = regex.Pattern(r"[a-z0-9][a-z0-9.-]*")
_POD_SUFFIX: Final = regex.Pattern(r"(?:-[a-z0-9]{6,10})?-(?:[a-z0-9]{5}|\d{1,3})$")
_SIZE: Final = regex.Pattern(r"[+-]?\d+(?:[kKMGTPEb]i?B?)?")
_DURATION: Final = regex.Pattern(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|y|min|hours?|days?)?")
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_TARGET: Final = regex.Pattern(r"(?:([A-Za-z_][\w.-]*)@)?([^@/:]+|\[[^]]+\])")
_SECRET_RESOURCE: Final = regex.Pattern(r"(?i)(?:^|[,/])[^,/]*secret[^,/]*")
_REVISION: Final = regex.Pattern(r"[A-Za-z0-9_@^][\w@{}^~./+-]*")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a check may need to know besides the word itself."""

    place: paths.Place
    names_only: Callable[[Word], bool]  # whether a dynamic word can only turn out to be names
    deep: bool = False  # everything below the paths is read
    searched: paths.Searched = field(default_factory=paths.Searched)  # the names that are read in that case


def _any(_word: Word, _parameter: str, _setting: Setting) -> str | None:
    return None


def _text(word: Word, _parameter: str, _setting: Setting) -> str | None:
    return None if word.kind is not WordKind.CONSTANT and word.single else _unknown(word)


def _glob(word: Word, _parameter: str, _setting: Setting) -> str | None:
    return None if word.kind is not WordKind.DYNAMIC else _unknown(word)


def _format(word: Word, _parameter: str, _setting: Setting) -> str | None:
    return _text(word, "", _setting) or (None if (word.prefix or word.text).startswith("+") else "write a +FORMAT")


def _leading(word: Word, _parameter: str, _setting: Setting) -> str | None:
    start = word.prefix if word.kind is WordKind.DYNAMIC else word.text
    if word.kind is WordKind.PATTERN or not word.single or (not start and not word.constant):
        return f"{word.text!r} could be an option: begin it with plain text, in quotes"
    return "options are not allowed here" if start.startswith("-") and start != "--" else None


def _archive(word: Word, _parameter: str, setting: Setting) -> str | None:
    if ":" in word.text:
        return f"{word.text}: an archive's name with a colon would be another host"
    return paths.readable(word, setting.place)


def _variable(word: Word, _parameter: str, _setting: Setting) -> str | None:
    return _unknown(word) or refuse_variable(word.text, exported=False)


def _expression(word: Word, parameter: str, _setting: Setting) -> str | None:
    matches = regex.fullmatch(parameter, word.text)
    return _unknown(word) or (None if matches else f"{word.text!r} is not one of the values allowed here")


def _choice(word: Word, parameter: str, _setting: Setting) -> str | None:
    allowed = word.text in parameter.split(",")
    return _unknown(word) or (None if allowed else f"{word.text!r} is not allowed here: only {parameter}")


def _integer(word: Word, parameter: str, _setting: Setting) -> str | None:
    if _unknown(word):
        return _unknown(word)
    if not regex.fullmatch(r"[+-]?\d{1,9}", word.text):
        return f"{word.text!r} is not a plain number"
    low, _, high = parameter.rpartition("-")
    if (high and int(word.text) > int(high)) or (low and int(word.text) < int(low)):
        return f"{word.text} is out of bounds: {parameter} is allowed"
    return None


def _matching(pattern: regex.Pattern[str], what: str) -> Callable[[Word, str, Setting], str | None]:
    def matches(word: Word, _parameter: str, _setting: Setting) -> str | None:
        return _unknown(word) or (None if pattern.fullmatch(word.text) else f"{word.text!r} is not a plain {what}")

    return matches


def _name(word: Word, _parameter: str, setting: Setting) -> str | None:
    if word.kind is WordKind.DYNAMIC and setting.names_only(word):
        return None
    return _unknown(word) or (None if _NAME.fullmatch(word.text) else f"{word.text!r} is not a plain name")


def _sleep(word: Word, _parameter: str, _setting: Setting) -> str | None:
    found = _DURATION.fullmatch(word.text)
    if _unknown(word) or found is None:
        return _unknown(word) or f"{word.text!r} is not a plain time"
    if float(found[1]) * _SECONDS.get(found[2] or "", LONGEST_SLEEP) > LONGEST_SLEEP:
        return f"sleep at most {LONGEST_SLEEP:.0f} seconds"
    return None


def _path(word: Word, _parameter: str, setting: Setting) -> str | None:
    if setting.deep:
        return paths.searchable(word, setting.place, setting.searched)
    return paths.readable(word, setting.place)


def _placed(judge: Callable[[Word, paths.Place], str | None]) -> Callable[[Word, str, Setting], str | None]:
    return lambda word, _parameter, setting: judge(word, setting.place)


def _sink(word: Word, _parameter: str, _setting: Setting) -> str | None:
    allowed = word.text in {"-", "/dev/null", "/dev/stdout", "/dev/stderr"}
    return _unknown(word) or (
        None if allowed else f"{word.text}: output goes to the screen or to /dev/null, not to a file"
    )


def _url(word: Word, _parameter: str, setting: Setting) -> str | None:
    if word.kind is WordKind.PATTERN:  # ``?`` in a query: a glob to the shell, which matches no file
        fixed = regex.split(r"[*?\[]", word.text, maxsplit=1)[0]
        if not regex.match(r"(?:https?://)?[^/]+/", fixed):
            return _unknown(word)
    elif _unknown(word):
        return _unknown(word)
    return reach.refuse_url(word.text) or setting.place.reach.refuse_url(word.text)


def _page(word: Word, _parameter: str, setting: Setting) -> str | None:
    plain = _PAGE.fullmatch(word.text)
    reason = (
        f"{word.text[:80]!r} could name another host, to be redirected to: write a plain path, without dots or a query"
    )
    return _url(word, "", setting) if plain else _unknown(word) or reason


def _dig(word: Word, _parameter: str, setting: Setting) -> str | None:
    """Check a word of dig: a name or an address to look up, ``@SERVER``, a type, ``+short`` and the like."""
    if _unknown(word) or _DIG_WORD.fullmatch(word.text):
        return _unknown(word)
    return _asked(word.text.removeprefix("@"), setting)


def _host(word: Word, _parameter: str, setting: Setting) -> str | None:
    return _unknown(word) or _asked(word.text, setting)


def _host_port(word: Word, _parameter: str, setting: Setting) -> str | None:
    return _unknown(word) or _asked(regex.sub(r":(?:\d{1,5}|[a-z]+)$", "", word.text), setting)


def _target(word: Word, _parameter: str, setting: Setting) -> str | None:
    found = _TARGET.fullmatch(word.text)
    if _unknown(word) or found is None:
        return _unknown(word) or f"{word.text!r} is not a plain [user@]host"
    return _asked(found[2], setting)


def _header(word: Word, _parameter: str, setting: Setting) -> str | None:
    name, _, value = word.text.partition(":")
    if _unknown(word) or not regex.fullmatch(r"[A-Za-z0-9-]+[:;][^\r\n]*", word.text):
        return _unknown(word) or f"{word.text!r} is not a plain header"
    # A proxy forwards a request to the host in this header.
    return _url(Word(text=value.strip()), "", setting) if name.lower() == "host" and value.strip() else None


def _write_out(word: Word, _parameter: str, _setting: Setting) -> str | None:
    harmless = not word.text.startswith("@") and "output{" not in word.text
    return _unknown(word) or (None if harmless else "-w may neither read nor write a file")


def _program(refuse: Callable[[str], str | None]) -> Callable[[Word, str, Setting], str | None]:
    return lambda word, _parameter, _setting: _unknown(word) or refuse(word.text)


def _properties(word: Word, _parameter: str, _setting: Setting) -> str | None:
    lowered = word.text.lower()
    plain = all(name.isascii() and name.isalpha() for name in lowered.split(","))
    hidden = "environ" in lowered or "credential" in lowered
    reason = f"{word.text!r}: name properties; neither Environment nor credentials are ever shown"
    return _unknown(word) or (None if plain and not hidden else reason)


def _resource(word: Word, _parameter: str, setting: Setting) -> str | None:
    if word.constant and _SECRET_RESOURCE.search(word.text):
        return f"{word.text}: secrets of the cluster are never read"
    return (
        _name(word, "", setting)
        if "," not in word.text
        else _matching(regex.Pattern(r"[\w,.-]+"), "name")(word, "", setting)
    )


def _container(word: Word, _parameter: str, setting: Setting) -> str | None:
    reason = _matching(_CONTAINER, "container name")(word, "", setting)
    if reason is None and _CONTAINER_ID.fullmatch(word.text):
        return f"{word.text} looks like a container id: name the container"
    return reason


def _git_revision(word: Word, _parameter: str, _setting: Setting) -> str | None:
    plain = _REVISION.fullmatch(word.text) and not paths.has_secret_name(word.text)
    return _unknown(word) or (None if plain else f"{word.text!r} is not a plain revision")


def _git_range(word: Word, _parameter: str, _setting: Setting) -> str | None:
    low, dots, high = word.text.partition("..")
    plain = dots and low and high and all(map(_REVISION.fullmatch, (low, high.lstrip("."))))
    return _unknown(word) or (None if plain else f"{word.text!r} is not a plain range: write FIRST..LAST")


def _git_file(word: Word, _parameter: str, _setting: Setting) -> str | None:
    """Check a path in a repository whose content is printed: only kinds of files that hold no secrets."""
    revision, _, path = word.text.rpartition(":")
    if _unknown(word) or (revision and not _REVISION.fullmatch(revision)):
        return _unknown(word) or f"{word.text!r} is not a plain revision"
    return None if paths.is_plain_file(path) else f"{path}: name a single file, of a kind that holds no secret"


def _git_blob(word: Word, _parameter: str, _setting: Setting) -> str | None:
    return _git_file(word, "", _setting) if ":" in word.text else "write REVISION:PATH"


def _git_format(word: Word, _parameter: str, _setting: Setting) -> str | None:
    return _unknown(word) or ("%G runs a program: leave it out" if "%G" in word.text else None)


def _plain(pattern: regex.Pattern[str], what: str) -> Callable[[Word, str, Setting], str | None]:
    def plain(word: Word, _parameter: str, _setting: Setting) -> str | None:
        fits = pattern.fullmatch(word.text) and "://" not in word.text and not paths.has_secret_name(word.text)
        return _unknown(word) or (None if fits else f"{word.text[:80]!r} is no {what}")

    return plain


def _connection(word: Word, _parameter: str, setting: Setting) -> str | None:
    """Check where curl may connect: a host and port that may be asked, mapped to themselves."""
    found = _CONNECTION.fullmatch(word.text)
    if _unknown(word) or word.text == NOWHERE:
        return _unknown(word)
    if found is None or (found[1].lower(), found[2]) != (found[3].lower(), found[4]):
        return f"{word.text!r}: write HOST:PORT:HOST:PORT, the same twice, or {NOWHERE}"
    url = f"https://{found[1]}:{found[2]}/"
    reasons = (_asked(found[1], setting), setting.place.reach.refuse_url(url))
    return next((reason for reason in reasons if reason and not isinstance(reason, Stranger)), reasons[0] or reasons[1])


_CHECKS: Final[dict[str, Callable[[Word, str, Setting], str | None]]] = {
    "any": _any,
    "leading": _leading,
    "variable": _variable,
    "archive": _archive,
    "ports": _matching(regex.Pattern(r"\d{1,5}(?:-\d{1,5})?"), "port"),
    "text": _text,
    "format": _format,
    "glob": _glob,
    "re": _expression,
    "one": _choice,
    "int": _integer,
    "size": _matching(_SIZE, "size"),
    "duration": _matching(_DURATION, "time"),
    "sleep": _sleep,
    "word": _matching(regex.Pattern(rf"[^{regex.SPACE}-][^{regex.SPACE}]*"), "word"),
    "name": _name,
    "path": _path,
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
    "awk": _program(programs.refuse_awk),
    "sed": _program(programs.refuse_sed),
    "jq": _program(programs.refuse_jq),
    "yq": _program(programs.refuse_yq),
    "template": _program(programs.refuse_template),
    "properties": _properties,
    "resource": _resource,
    "container": _container,
    "service": _matching(_CONTAINER, "service name"),
    "unit": _matching(_UNIT, "unit name"),
    "workload": _matching(_WORKLOAD, "deployment/NAME"),
    "workloadtype": _matching(_WORKLOAD_TYPE, "kind of workload"),
    "workloadname": _matching(_KUBERNETES_NAME, "name"),
    "pod": _matching(_KUBERNETES_NAME, "pod name"),
    "podref": _matching(regex.Pattern(r"(?:pods?|po)/[a-z0-9][a-z0-9.-]*"), "pod/NAME"),
    "gitrev": _git_revision,
    "gitrange": _git_range,
    "gitfile": _git_file,
    "gitblob": _git_blob,
    "gitformat": _git_format,
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


def _as_is(text: str, _setting: Setting) -> str:
    return text


def _pod_owner(text: str, _setting: Setting) -> str:
    """Return what a pod belongs to: its name without the suffix of a ReplicaSet or StatefulSet."""
    return _POD_SUFFIX.sub("", text.rpartition("/")[2])


_SERVICES: Final[dict[str, Callable[[str, Setting], str]]] = {
    "container": _as_is,
    "service": _as_is,
    "unit": lambda text, _setting: text.removesuffix(".service"),
    "workload": lambda text, _setting: text.rpartition("/")[2],
    "workloadname": _as_is,
    "pod": _pod_owner,
    "podref": _pod_owner,
    "release": _as_is,
    "manifest": lambda text, setting: paths.deployed_name(text, setting.place),
}

SERVICE_KINDS: Final = frozenset(_SERVICES)
"""The kinds whose values name the service of an action."""


def check(kind: str, word: Word, setting: Setting) -> str | None:
    """Return why a word is not a value of this kind here, or None."""
    name, _, parameter = kind.partition(":")
    return _CHECKS[name](word, parameter, setting)


def service_of(kind: str, word: Word, setting: Setting) -> str | None:
    """Return the service that a word of this kind names, or None for kinds that name none."""
    name = _SERVICES.get(kind.partition(":")[0])
    return name(word.text, setting) if name else None


def _unknown(word: Word) -> str | None:
    if word.kind is WordKind.PATTERN:
        return f"{word.text} is a pattern for file names: quote it"
    return None if word.constant else f"{word.text} is not known before it runs: write the value out"


def _asked(host: str, setting: Setting) -> str | None:
    return reach.refuse_host(host) or setting.place.reach.refuse_host(host)
