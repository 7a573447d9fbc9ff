"""Small languages in command arguments: which programs in awk, sed, jq, yq and Go templates only look.

These languages can run commands, write files and print the environment. Each check is an allow-list, or forbids,
anywhere in the text, the words without which no harm can be done.
"""

from __future__ import annotations

from typing import Final

from claudeops.policy.places import is_secret_name
from claudeops.text import regex

_AWK_WORDS: Final = regex.Pattern(
    r"(?:^|[^A-Za-z_]|\b\d\w*)(system|getline|ENVIRON|ARGV|ARGC|ARGIND|PROCINFO|SYMTAB|FUNCTAB)(?:\W|$)|@|\\\n"
)  # awk reads ``1system`` and ``0xasystem`` as two words
_AWK_OUTPUT: Final = regex.Pattern(r"(?s)print(?:.*>(?:[^=]|$)|(?:.*[^|])?\|(?:[^|]|$))")  # only print writes

_SED_REGEX: Final = r"(?:[^\\{d}\[\n]|\\.|\[\^?\]?[^\]\\{d}\n]*\])*"
_SED_TEXT: Final = r"(?:[^\\{d}\n]|\\.)*"

_SED_ADDRESS: Final = r"(?:\d+(?:~\d+)?|\$|/" + _SED_REGEX.format(d="/") + r"/I?)"

_JQ_WORDS: Final = regex.Pattern(
    r"(?:^|[^.\w])(env|input_filename|include|import|modulemeta|get_search_list)\b|\b(ENV|__prog_args)\b"
)  # jq 1.6 takes ``$ ENV`` for ``$ENV``
_YQ_WORDS: Final = regex.Pattern(r"env|load|eval|file_?[nN]ame|split_?doc|system|\bref\b")
_YQ_FILE: Final = regex.Pattern(r"[\w.+@:,-]+")

_TEMPLATE_ACTION: Final = regex.Pattern(r"(?s)\{\{(.*?)\}\}")
_TEMPLATE_WORD: Final = regex.Pattern(
    r"\$?((?:\.[A-Za-z]\w*)+)|\s+|\"(?:[^\"\\]|\\[nt\"])*\"|\d+|-|\(|\)|\$[A-Za-z]\w*|:=|,|(?:json|println|print|printf|join|len|lower|upper"
    r"|title|truncate|slice|split)\b"
    r"|(?:if|else|end|eq|ne|lt|gt|le|ge|and|or|not|with|range|index)\b|\|"
)
TEMPLATE_FIELDS: Final = frozenset(
    {"Id", "ID", "Name", "Names", "Created", "CreatedAt", "State", "Status", "RestartCount", "Image", "Platform"}
    | {"NetworkSettings", "Mounts", "LogPath", "Driver", "SizeRw", "SizeRootFs", "RepoTags", "RepoDigests", "Size"}
    | {"Architecture", "Os", "Containers", "IPAM", "Scope", "Internal", "Mountpoint", "UpdatedAt", "Health", "Pid"}
    | {"ExitCode", "StartedAt", "FinishedAt", "Running", "OOMKilled", "Error", "Networks", "IPAddress", "Ports"}
    | {"Gateway", "MacAddress", "Source", "Destination", "Type", "Mode", "RW", "Log", "Output", "FailingStreak"}
    | {"HostPort", "HostIp", "Paused", "Restarting", "Dead", "Subnet", "Config", "HostConfig", "Spec", "Path", "Args"}
)
TEMPLATE_INNER: Final = frozenset(
    {"Image", "Hostname", "Healthcheck", "Test", "Interval", "Timeout", "Retries", "StopSignal", "User", "WorkingDir"}
    | {"ExposedPorts", "Volumes", "RestartPolicy", "MaximumRetryCount", "NetworkMode", "Memory", "NanoCpus", "Binds"}
    | {"PortBindings", "CpuShares", "MemorySwap", "PidsLimit", "LogConfig", "Replicas", "Replicated", "Mode", "Name"}
    | {"Labels", "Cmd", "Entrypoint"}
    | {"AutoRemove", "Privileged", "Type", "CpuQuota", "CpuPeriod", "UpdateConfig", "Role", "Availability"}
)
TEMPLATE_GUARDED: Final = frozenset({"Config", "HostConfig", "Spec"})  # hold the environment or plug-in options


def _sed_substitutions() -> str:
    forms = []
    for delimiter in "/|,#@:!%_":
        d = regex.escape(delimiter)
        forms.append(f"s{d}{_SED_REGEX.format(d=d)}{d}{_SED_TEXT.format(d=d)}{d}[gpiI0-9]*")
    return "|".join(forms)


_SED_COMMAND: Final = rf"(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|\+\d+))?)?\s*!?\s*(?:[pdq=]|{_sed_substitutions()})"
_SED: Final = regex.Pattern(rf"\s*{_SED_COMMAND}(?:\s*[;\n]\s*{_SED_COMMAND})*\s*;?\s*")


def refuse_awk(text: str) -> str | None:
    """Return why an awk program is refused, or None.

    It may filter and print, but not run commands, read more input, write, or see the environment.
    """
    found = _AWK_WORDS.search(text)
    if found:
        return f"awk may not use {found[1] or found[0]!r} here"
    if _AWK_OUTPUT.search(text):
        return "awk may not print into files or commands: put what holds > or | before the first print"
    return None


def refuse_sed(text: str) -> str | None:
    """Return why a sed script is refused, or None: it may use p, d, q, =, and s/…/…/ with flags g, p, i and numbers."""
    if _SED.fullmatch(text):
        return None
    return "sed may only print, delete, quit and substitute here, with the flags g, p, i and numbers"


def refuse_jq(text: str) -> str | None:
    """Return why a jq filter is refused, or None: it may not see the environment, modules or file names."""
    found = _JQ_WORDS.search(text)
    return f"jq may not use {found[1] or found[2]!r} here" if found else None


def refuse_yq(text: str) -> str | None:
    """Return why a yq expression is refused, or None: it may not see the environment or load files."""
    found = _YQ_WORDS.search(text)
    if found:
        return f"yq may not use {found[0]!r} here"
    if "/" in text or is_secret_name(text) or (_YQ_FILE.fullmatch(text) and not text.startswith(".")):
        return f"{text[:80]!r} could be a file's name, which one of the programs called yq would show"
    reason = refuse_jq(text)
    return reason and reason.replace("jq", "yq", 1)


def refuse_template(text: str) -> str | None:
    """Return why a Go template of docker is refused, or None: it may use named fields that hold no environment."""
    actions = [found[1] for found in _TEMPLATE_ACTION.finditer(text)]
    if text.count("{{") != len(actions):
        return "this template is not plain"
    if not actions or text.lstrip().lower().startswith(("json", "pretty", "table")):  # docker's own words
        return "write single fields, such as {{.State.Status}}: json shows all, and so the environment"
    for action in actions:
        if not _plain_action(action.strip().strip("-")):
            return f"{{{{{action}}}}}: only single fields such as {{{{.State.Status}}}} are shown, never Env or all"
    return None


def _plain_action(text: str) -> bool:
    """Whether an action consists only of words of the language and fields that hold no secret."""
    done = 0
    for word in _TEMPLATE_WORD.finditer(text):
        if word.start() != done or (word[1] and not _shows_no_secret(word[1])):
            return False
        done = word.end()
    return done == len(text)


def _shows_no_secret(chain: str) -> bool:
    names = chain.split(".")[1:]
    if names[0] in TEMPLATE_GUARDED:
        return len(names) > 1 and names[1] in TEMPLATE_INNER
    return names[0] in TEMPLATE_FIELDS
