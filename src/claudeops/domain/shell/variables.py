"""Which variables a command may set: never one that changes what other commands are or do."""

from __future__ import annotations

from typing import Final

from claudeops.domain import regex

EXPORTABLE: Final = regex.Pattern(r"LANG|LANGUAGE|LC_[A-Z]+|TZ|COLUMNS|LINES|NO_COLOR|TERM|DEBIAN_FRONTEND")
"""What may be handed to a command in front of it."""

_HARMLESS_VALUE: Final = regex.Pattern(r"[\w.,:@/+-]*")
_NAME: Final = regex.Pattern(r"[A-Za-z_]\w*")
_INFLUENTIAL: Final = regex.Pattern(
    r"PATH|HOME|IFS|ENV|PWD|OLDPWD|UID|EUID|OPT(?:IND|ARG|ERR)|REPLY|MAIL.*|CDPATH|GLOBIGNORE|FIGNORE|EXECIGNORE|FCEDIT|HIST.*"
    r"|(?:SHELL|BASH|FUNC|PS\d|PROMPT|LD_|DYLD_|TMP|TEMP|GIT|SSH|DOCKER|COMPOSE|PODMAN|BUILDKIT|KUBE|HELM|ANSIBLE|CLAUDE"
    r"|ANTHROPIC|PYTHON|PERL|RUBY|NODE|NPM|JAVA|LUA|AWK|GAWK|POSIX|LESS|MAN|CURL|WGET|SSL|OPENSSL|SYSTEMD|PG|MYSQL|REDIS"
    r"|AWS|GOOGLE|AZURE|XDG|GCONV|LOCPATH|NLS|MALLOC|GLIBC|RES_|RESOLV|HOSTALIASES|LOCALDOMAIN|TZDIR|SUDO|TAR_|GZIP|XZ_"
    r"|ZIP|UNZIP|GREP|JQ|RIPGREP|FIND|POSTGRES|VAULT|CONSUL|NOMAD|ETCD|DBUS|DISPLAY|EDITOR|VISUAL|BROWSER|LS_|TERMINFO"
    r"|IPROUTE|MTR|NMAP|LSOF|PROCPS|PS_|UNIX|CMD_ENV|COREDUMP|LIBVIRT|VIRSH|ZPOOL|ZFS|SMARTD|APT|DPKG|RPM).*"
    r"|.*_(?:PROXY|PAGER|EDITOR|RSH|CONFIG|ASKPASS|PRELOAD|LIBRARY_PATH)|PAGER|BC_.*|POSIXLY_CORRECT"
)


def refuse_variable(name: str, *, exported: bool) -> str | None:
    """Return why a variable may not be set, or None; ``exported``: a command is to see it."""
    if not _NAME.fullmatch(name):
        return f"{name!r} is no plain name for a variable"
    if exported and not EXPORTABLE.fullmatch(name):
        return f"setting {name} for a command is not allowed: run the command without it"
    if not exported and _INFLUENTIAL.fullmatch(name.upper()):
        return f"setting {name} could change what other commands do: use another name, in lower case"
    return None


def refuse_value(name: str, value: str) -> str | None:
    """Return why a value may not be handed to a command in a variable, or None."""
    if _HARMLESS_VALUE.fullmatch(value) and "/" not in value.removeprefix(":")[:1]:
        return None
    return f"{name}={value[:40]!r} is no plain value"
