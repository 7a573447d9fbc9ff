"""The rule book: all rules of a policy by command, and the commands that run other commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from claudeops.policy.rules import (
    CommandGroup,
    CommandRule,
    Given,
    RuleRefusedError,
    UnclearCommandError,
    Wrapper,
    read_arguments,
)
from claudeops.policy.shell.language import Literal, Word
from claudeops.text import regex

SHELLS: Final = frozenset({"sh", "bash", "dash", "ash"})
FIND: Final = "find"
XARGS: Final = "xargs"
DROPPED: Final = frozenset({"env", "command", "builtin", "nohup", "time"})
"""Wrappers of which nothing is left in what runs: the command behind them runs plainly."""

WRAPPERS: Final = (
    Wrapper(
        name="sudo",
        options="-n|--non-interactive -u|--user=name -g|--group=name -H|--set-home",
        fresh=True,
        dashes=True,
    ),
    Wrapper(name="doas", options="-n -u=name", fresh=True, dashes=True),
    Wrapper(name="env"),
    Wrapper(name="nice", options="-n|--adjustment|-NUM=int"),
    Wrapper(name="ionice", options="-c|--class=word -n|--classdata=int -t"),
    Wrapper(
        name="timeout",
        options="-s|--signal=word -k|--kill-after=duration -v --preserve-status --foreground",
        before="duration",
    ),
    Wrapper(name="nohup"),
    Wrapper(name="time", options="-p"),
    Wrapper(name="stdbuf", options="-o|--output=word -i|--input=word -e|--error=word"),
    Wrapper(name="command", options="-p"),
    Wrapper(name="builtin"),
    Wrapper(
        name=XARGS,
        options="-r|--no-run-if-empty -n|--max-args=int -P|--max-procs=int -L|--max-lines=int -t|--verbose"
        " -d|--delimiter=text -I=word",
    ),
    Wrapper(
        name="ssh",
        options="-p=int:65535 -l=name -i=key -J=target -T -n -q -4 -6 -x -v -o=re:(BatchMode=yes"
        "|ConnectTimeout=[0-9]{1,3}|ConnectionAttempts=[0-9]|StrictHostKeyChecking=(yes|no|accept-new)"
        "|UserKnownHostsFile=/dev/null|ServerAliveInterval=[0-9]{1,3}|ServerAliveCountMax=[0-9]{1,2}"
        "|LogLevel=[A-Z0-9]+|PasswordAuthentication=no|IdentitiesOnly=yes)",
        before="target",
        always="-T -o BatchMode=yes",
        elsewhere=True,
        text=True,
        after_host=True,
    ),
    Wrapper(
        name="docker exec|docker container exec",
        options="-i|--interactive -t|--tty -u|--user=word -w|--workdir=directory",
        before="name",
        elsewhere=True,
    ),
    Wrapper(
        name="docker compose exec",
        options="-T|--no-TTY -i -u|--user=word -w|--workdir=directory --index=int",
        before="name",
        always="-T",
        elsewhere=True,
    ),
    Wrapper(
        name="kubectl exec",
        options="-i|--stdin -t|--tty -c|--container=name",
        before="name",
        elsewhere=True,
        after_host=True,
        dashes=True,
    ),
    Wrapper(name="pct exec", before="re:[0-9]{1,9}", elsewhere=True, after_host=True, dashes=True),
    Wrapper(name="lxc-attach", options="-n|--name=name", elsewhere=True, dashes=True),
    *(Wrapper(name=shell, options="-c -e -u -x -l -i -s -o=one:pipefail", text=True) for shell in sorted(SHELLS)),
    Wrapper(name=FIND),
)

_WHY: Final = (
    ("iptables ip6tables nft ufw firewall-cmd tc brctl", "the network is never changed"),
    ("mkfs dd fdisk parted wipefs shred mkswap lvremove", "disks are never written"),
    ("shutdown reboot halt poweroff init telinit", "machines are never switched off"),
    ("useradd usermod userdel passwd chpasswd adduser", "accounts are never changed"),
    ("kill pkill killall", "processes are never killed by hand: restart the service"),
    (
        "python python3 perl ruby node php lua tclsh",
        "programs in other languages are not judged: use plain commands, or jq and awk",
    ),
    ("source .", "scripts are not judged: write their commands out"),
    (
        "exec trap alias shopt enable mapfile readarray let hash",
        "it changes what other commands mean: write the commands themselves",
    ),
    ("printenv envsubst", "the environment is never shown"),
    ("less more vi vim nano man watch htop tmux screen", "there is no terminal here: use cat, head or top -bn1"),
    ("scp sftp rsync ftp socat telnet", "files are not copied between hosts"),
    (
        "psql mysql mariadb mongosh mongo sqlite3",
        "databases are not queried or changed: pg_isready and mysqladmin ping say whether they run",
    ),
    ("claude codex caliban", "a session starts no other session"),
    ("setsid disown bg at batch systemd-run daemonize", "nothing may outlive the call"),
    ("chroot nsenter unshare su runuser pkexec strace gdb script", "what it runs cannot be judged"),
    ("zsh fish ksh", "use bash -c with the whole text in quotes"),
)
UNJUDGED: Final = frozenset(
    {
        "python",
        "python2",
        "python3",
        "perl",
        "ruby",
        "node",
        "deno",
        "bun",
        "php",
        "lua",
        "tclsh",
        "source",
        ".",
        "make",
    }
    | {"zsh", "fish", "ksh", "pwsh", "R", "Rscript", "java", "go", "expect"}
)
"""Commands that run code which cannot be judged here."""

REASONS: Final = {
    **{name: why for names, why in _WHY for name in names.split()},
    "docker info": "it runs the user's plug-ins: docker version, docker system df",
    "docker buildx": "it writes below the home: docker ps --filter name=buildx_buildkit",
    "crictl inspect": "it shows the environment",
    "crictl info": "it shows the environment",
    "certbot": "it writes logs and locks: openssl x509 -noout -dates -in /etc/letsencrypt/live/NAME/cert.pem",
    "exportfs": "it locks its table: cat /var/lib/nfs/etab, or showmount -e HOST",
    "monit": "it writes its log and state: tail -n 50 /var/log/monit.log",
    "pm2": "it starts a daemon: ps -e -o pid,ppid,etime,args",
    "caddy": "it writes into its home: dpkg-query -s caddy, or docker inspect for its image",
    "promtool check config": "it prints lines of every file that the configuration names: promtool check rules FILE",
    "helm get": "values hold secrets: helm status, helm history",
}
"""Why a command is in no rule, where there is a reason to give."""


class RuleMatch(msgspec.Struct, frozen=True):
    """What the book knows about a command line."""

    path: str  # the command with its subcommands
    arguments: tuple[Word, ...]  # what follows them
    steps: tuple[tuple[Given, str], ...]  # the options in front of each subcommand, and the subcommand
    shared: str  # options that may also follow the subcommands
    rules: tuple[CommandRule, ...]
    wrapper: Wrapper | None
    wrapper_tier: int = 1  # the lowest tier that may use the wrapper

    @property
    def given(self) -> Given:
        """The options in front of the subcommands."""
        return tuple(option for options, _ in self.steps for option in options)


class RuleBook:
    """Rules, groups and wrappers by name."""

    def __init__(
        self,
        *,
        rules: Iterable[CommandRule],
        groups: Iterable[CommandGroup],
        wrappers: Mapping[str, int],
        aliases: Mapping[str, str],
    ) -> None:
        by_name: defaultdict[str, list[CommandRule]] = defaultdict(list)
        for rule in rules:
            for name in rule.name.split("|"):
                by_name[name].append(rule)
        self._rules = {name: tuple(found) for name, found in by_name.items()}
        self._wrappers = {name: wrapper for wrapper in WRAPPERS for name in wrapper.name.split("|") if name in wrappers}
        self._wrapper_tiers = dict(wrappers)
        self._groups = {
            path: CommandGroup(name=path) for name in (*self._rules, *self._wrappers) for path in _above(name)
        }
        self._groups |= {group.name: group for group in reversed(tuple(groups))}
        self._aliases = dict(aliases)

    @property
    def rules(self) -> Mapping[str, tuple[CommandRule, ...]]:
        """Every rule by each of its names."""
        return self._rules

    @property
    def wrappers(self) -> Mapping[str, int]:
        """Commands that run others, with the lowest tier that may use each."""
        return {name: self._wrapper_tiers[name] for name in self._wrappers}

    @property
    def aliases(self) -> Mapping[str, str]:
        """Other names of commands."""
        return self._aliases

    def options_of(self, path: str, *, shared: bool = False) -> str:
        """Return the options in front of a command's subcommand; ``shared``: only those that may follow it as well."""
        group = self._groups.get(path)
        return group.options if group is not None and (group.shared or not shared) else ""

    def find(self, name: str, arguments: tuple[Word, ...]) -> RuleMatch:
        """Return what is known about a command and its subcommands. Raises `RuleRefusedError` for an unknown one."""
        path, rest, shared = self._aliases.get(name, name), arguments, ""
        steps: list[tuple[Given, str]] = []
        while path in self._groups:
            group = self._groups[path]
            try:
                read = read_arguments(rest, f"{shared} {group.options}", "ordered")
                following = self._following(path, read.positionals)
            except RuleRefusedError as error:
                if path in self._rules and not isinstance(error, _UnknownSubcommandError):
                    break
                raise type(error)(f"{path}: {error}") from None
            path, rest = f"{path} {following}", read.positionals[1:]
            steps.append((read.options, following))
            shared = f"{shared} {group.options}" if group.shared else shared
        if path not in self._rules and path not in self._wrappers:
            unjudged = regex.sub(r"[\d.]+$", "", path) in UNJUDGED or path in UNJUDGED
            kind = UnclearCommandError if unjudged else RuleRefusedError
            raise kind(f"{path} is in no rule: {REASONS.get(path, 'it is not allowed at any tier')}")
        return RuleMatch(
            path,
            rest,
            tuple(steps),
            shared,
            self._rules.get(path, ()),
            self._wrappers.get(path),
            self._wrapper_tiers.get(path, 1),
        )

    def _following(self, path: str, positionals: tuple[Word, ...]) -> str:
        """Return the subcommand; raises `RuleRefusedError` where there is none, or an unknown one."""
        first = positionals[0] if positionals else None
        if not isinstance(first, Literal):
            kind = UnclearCommandError if first else RuleRefusedError
            raise kind(f"write out what it is to do: {self._known(path)}")
        following = f"{path} {first.text}"
        if following not in self._rules and following not in self._groups and following not in self._wrappers:
            why = REASONS.get(following, f"known are {self._known(path)}")
            raise _UnknownSubcommandError(f"{first.text[:40]!r} is in no rule and not allowed at any tier: {why}")
        return first.text

    def _known(self, path: str) -> str:
        """Return the subcommands of a command, for a sentence."""
        depth = path.count(" ") + 1
        names = (*self._rules, *self._wrappers)
        return ", ".join(sorted({name.split(" ")[depth] for name in names if name.startswith(f"{path} ")}))


class _UnknownSubcommandError(RuleRefusedError):
    """What follows a command is none of its subcommands."""


def _above(name: str) -> list[str]:
    words = name.split(" ")
    return [" ".join(words[:count]) for count in range(1, len(words))]
