"""The settings of Claude Ops, which this program succeeds: what stays, what has another name, what is gone and why.

The daemon refuses a name that is gone with the sentence from here. ``claudeops doctor --from-claude-ops`` reads a whole
old set-up, a compose file or an env file, and answers line by line. Values are never repeated: they may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from claudeops.settings.model import KNOWN
from claudeops.settings.variables import BROWSER_CREDENTIAL_PREFIX, FILE_SUFFIX, WITHOUT_EFFECT

_NO_CHANNELS: Final = "sessions take no messages from chats; `claudeops bootstrap --prompt` asks for something"
_NO_PROVISIONING: Final = "claudeops watches services and sets none up"
_FIXED_FADING: Final = "a memory fades by 0.1 a week after 30 days; `claudeops memories` corrects single ones"


class Fate(StrEnum):
    """What has become of a setting."""

    STAYS = "stays"
    RENAMED = "renamed"
    GONE = "gone"
    NOTE = "note"  # it stays, and there is something to know, or to do
    STRANGE = "strange"  # neither of the two programs knows it


RENAMED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "CLAUDEOPS_TIER1_PROMPT": ("CLAUDEOPS_PROMPT", "the prompt of tier 1 is CLAUDEOPS_PROMPT"),
        "CLAUDEOPS_MODEL": ("CLAUDEOPS_TIER1_MODEL", "every tier has its own model"),
        "CLAUDEOPS_MAX_SESSION_DURATION": ("CLAUDEOPS_SESSION_TIMEOUT", "it is in seconds"),
        "CLAUDEOPS_DB_PATH": (
            "CLAUDEOPS_DATABASE_URL",
            "write sqlite:////path/to/a/new/file.db",
        ),
        "CLAUDEOPS_POSTGRES_URL": ("CLAUDEOPS_DATABASE_URL", "write postgresql://user:password@host/name"),
        "CLAUDEOPS_APPRISE_ALERT_URLS": ("CLAUDEOPS_APPRISE_URLS", "there is one list"),
        "CLAUDEOPS_APPRISE_DIGEST_URLS": ("CLAUDEOPS_APPRISE_URLS", "there is one list"),
        "CLAUDEOPS_VERBOSE": (
            "CLAUDEOPS_LOG_LEVEL",
            "set it to debug for more of the daemon's log; `claudeops run --live` prints what sessions do",
        ),
    }
)
"""By old name: the new one, and what to know of it."""

GONE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CLAUDEOPS_TIER": (
            "the daemon says itself which tier a session is: CLAUDEOPS_MAX_TIER is the highest one allowed, and "
            "`claudeops bootstrap --tier 2` begins a chain higher up"
        ),
        "CLAUDEOPS_PR_ENABLED": (
            "the policy decides what may be pushed and opened: `claudeops show-tool 'gh pr create'` shows its rules by "
            "tier, and CLAUDEOPS_POLICY_PATH changes them"
        ),
        "CLAUDEOPS_WEBHOOK_API_KEY": (
            "give each sender a token of its own, `claudeops token create --scope alerts:webhook`, or the key of "
            "CLAUDEOPS_CHAT_API_KEY"
        ),
        "CLAUDEOPS_SSH_USERS": "the manifests (CLAUDE-OPS.md) say who logs in where; keys go to CLAUDEOPS_TIER<n>_HOME",
        "CLAUDEOPS_ESCALATION_COOLDOWN": "the policy limits actions, by kind and service; `claudeops policy show`",
        "CLAUDEOPS_MEMORY_DECAY_RATE": _FIXED_FADING,
        "CLAUDEOPS_MEMORY_GRACE_DAYS": _FIXED_FADING,
        "CLAUDEOPS_RESUME_CONTEXT_THRESHOLD": "each session of a chain gets a handover instead of the conversation",
        "CLAUDEOPS_CHANNEL_WEBHOOK_TOKEN": _NO_CHANNELS,
        "CLAUDEOPS_CHANNEL_WEBHOOK_PORT": _NO_CHANNELS,
        "CLAUDEOPS_CHANNEL_TELEGRAM_TOKEN": _NO_CHANNELS,
        "CLAUDEOPS_CHANNEL_DISCORD_TOKEN": _NO_CHANNELS,
        "CLAUDEOPS_CHANNEL_PAIRING_CODE": _NO_CHANNELS,
        "CLAUDEOPS_CHANNEL_PAIRING_TIMEOUT": _NO_CHANNELS,
        "CLAUDEOPS_PROVISION_MODEL": _NO_PROVISIONING,
        "CLAUDEOPS_PROVISION_TIMEOUT": _NO_PROVISIONING,
        "CLAUDEOPS_PROVISION_VERIFY_TIMEOUT": _NO_PROVISIONING,
    }
)
"""By old name: why nothing of the kind is read, and what there is instead."""

_NOTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CLAUDEOPS_ALLOWED_TOOLS": "it can only narrow what the policy allows (`claudeops policy show`)",
        "CLAUDEOPS_MCP_CONFIG": "it has no default any more, and the file is never written to",
        "CLAUDEOPS_PROMPT": "a prompt of Claude Ops names skills and hooks that are not here: better begin with ours",
        "CLAUDEOPS_STATE_DIR": (
            "the database of Claude Ops lies there as claudeops.db: move it away, then `claudeops migrate-from` it"
        ),
        "CLAUDEOPS_DRY_RUN": "it also holds for sessions that begin above tier 1",
    }
)
_FOR_TOOLS: Final = frozenset({"GITHUB_TOKEN", "GH_TOKEN", "GITEA_TOKEN", "GITEA_URL", "GITLAB_TOKEN"})
_TIER: Final = re.compile(r"CLAUDEOPS_TIER[123]_(?=ALLOWED_TOOLS$|PROMPT$)")

_SETTING: Final = re.compile(
    # NAME=value of an env file; `- NAME=value`, `- NAME`, `NAME: value` of a compose file. Quotes may stand around.
    r"""^\s*(?:export\s+)?(?:-\s*)?["']?(?P<name>[A-Z][A-Z0-9_]{2,})["']?\s*(?:=|:(?=\s|$)|$)"""
)
_FLAG: Final = re.compile(r"(?<![\w-])--(?P<flag>[a-z][a-z0-9-]+)\b")
_PORT: Final = re.compile(r"""^\s*-\s*["']?(?:[\d.]+:)?\d+:8080(?:/tcp)?["']?\s*$""")
_MOUNT: Final = re.compile(r"""^\s*-\s*["']?(?P<from>[^:"']+):(?P<to>/(?:state|results|repos|app)[^:"'\s]*)""")
_IMAGE: Final = re.compile(r"""^\s*image:\s*["']?\S*claude-ops""")
_MOST_LINES: Final = 10_000


class LineVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one line of an old set-up."""

    line: int
    subject: str  # a variable's name, a flag, a mount; never a value
    fate: Fate
    says: str


def sentence_for(name: str) -> str | None:
    """Return what to say of a name that Claude Ops knew and this program does not; ``None``: it knew none such."""
    base = name.removesuffix(FILE_SUFFIX)
    if base in RENAMED:
        new, note = RENAMED[base]
        return f"Claude Ops' name; here it is {new}: {note}"
    if base in GONE:
        return f"Claude Ops' name, and gone: {GONE[base]}"
    return None


def read_set_up(text: str) -> Iterator[LineVerdict]:
    """Yield what becomes of each line of a compose file or an env file that says something about Claude Ops."""
    for number, line in enumerate(text.splitlines()[:_MOST_LINES], start=1):
        if line.lstrip().startswith("#"):
            continue
        found = _SETTING.match(line)
        if found is not None and (verdict := _of_variable(number, found["name"])) is not None:
            yield verdict
        else:
            yield from _of_deployment(number, line)


def _of_variable(number: int, name: str) -> LineVerdict | None:
    found = _of_old(name) or _of_known(name)
    if found is None and name.startswith("CLAUDEOPS_"):
        found = Fate.STRANGE, "neither Claude Ops nor claudeops knows this name: correct or unset it"
    return None if found is None else LineVerdict(line=number, subject=name, fate=found[0], says=found[1])


def _of_old(name: str) -> tuple[Fate, str] | None:
    """Return what has become of a name that has no effect here."""
    if name in RENAMED:
        new, note = RENAMED[name]
        return Fate.RENAMED, f"now {new}: {note}"
    if name.startswith(BROWSER_CREDENTIAL_PREFIX):
        return Fate.GONE, f"{WITHOUT_EFFECT['CLAUDEOPS_BROWSER_ALLOWED_ORIGINS']}; its value is still redacted"
    if (why := GONE.get(name) or WITHOUT_EFFECT.get(name)) is not None:
        return Fate.GONE, why
    if name in _FOR_TOOLS:
        return Fate.NOTE, "sessions inherit nothing: name it in CLAUDEOPS_TIER<n>_ENV of a tier that needs it"
    return None


def _of_known(name: str) -> tuple[Fate, str] | None:
    base = name.removesuffix(FILE_SUFFIX)
    known = KNOWN.get(name) or (KNOWN[base] if base in KNOWN and KNOWN[base].secret else None)
    if known is None:
        return None
    if not known.used:
        return Fate.NOTE, "the name stays, and nothing uses it yet"
    note = _NOTES.get(_TIER.sub("CLAUDEOPS_", name)) if _TIER.match(name) else _NOTES.get(name)
    return (Fate.STAYS, known.meaning.replace("`", "")) if note is None else (Fate.NOTE, note)


def _of_deployment(number: int, line: str) -> Iterator[LineVerdict]:
    if _IMAGE.match(line):
        says = "build or pull the image of claudeops: docs/how-to/run-in-a-container.md"
        yield LineVerdict(line=number, subject="image", fate=Fate.RENAMED, says=says)
    if _PORT.match(line):
        says = (
            "alerts come in there, from senders with a token (`claudeops token create`): take it out if none is outside"
        )
        yield LineVerdict(line=number, subject="port 8080", fate=Fate.NOTE, says=says)
    if (mount := _MOUNT.match(line)) is not None:
        yield LineVerdict(line=number, subject=f"mount {mount['to']}", fate=Fate.NOTE, says=_of_mount(mount["to"]))
    for flag in _FLAG.findall(line):
        name = f"CLAUDEOPS_{flag.upper().replace('-', '_')}"
        if name in KNOWN or name in RENAMED or name in GONE or name in WITHOUT_EFFECT:
            says = f"settings are environment variables alone: {_instead(name)}"
            yield LineVerdict(line=number, subject=f"--{flag}", fate=Fate.RENAMED, says=says)


def _instead(name: str) -> str:
    if name in RENAMED:
        return RENAMED[name][0]
    return GONE.get(name) or WITHOUT_EFFECT.get(name) or name


def _of_mount(target: str) -> str:
    if target.startswith("/state"):
        return _NOTES["CLAUDEOPS_STATE_DIR"]
    if target.startswith("/results"):
        return "it stays; the old logs are not read, and the daemon removes only logs of its own"
    if target.startswith("/repos"):
        return "it stays; read-only is enough"
    return "look whether the image has it: checks, playbooks and skills come with claudeops, or lie in a repository"
