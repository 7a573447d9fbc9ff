"""Commands with the answers they must get, read from the tables in ``tests/data/policy``."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from claudeops.domain.calls import ToolCall, Verdict
from claudeops.domain.estate.estate import Estate, Manifest, Service, StatementSource
from claudeops.policy.tiers import JudgeScope, TierPolicy, judge, parse_policy, tier_policy
from claudeops.settings.policy import default_text

DEFAULT_TEXT = default_text()
POLICY = parse_policy(DEFAULT_TEXT)
TABLES = Path(__file__).parents[1] / "data" / "policy"
MANIFEST = StatementSource(path="tables/CLAUDE-OPS.md", line=1)
NAMED = Estate(
    manifests=(
        Manifest(
            repository="tables",
            services=tuple(Service(name=name, source=MANIFEST) for name in ("a", "b", "db", "web")),
            directories=("/srv",),
        ),
    ),
    hosts=(
        *("a", "a.example", "b", "b.example", "bastion", "cache", "consul", "db", "db.internal", "db1"),
        *("evil", "evil.example", "example.com", "example.org", "grafana", "host", "host1", "ifconfig.me"),
        *("kafka", "nas", "other", "photos", "prometheus", "redis", "shop", "shop.example.com", "shop.example.org"),
        *("web", "web.example", "web.internal", "web1", "web2", "web3", "x", "1.1.1.1", "8.8.8.8"),
    ),
)
"""An estate that names what the tables name: so what they say of a command is not about its host or directory."""

VIEW = (
    *("/etc/hosts", "/etc/shadow", "/etc/shadow.bak", "/etc/kubernetes/admin.conf", "/etc/ssl/certs/ISRG_Root_X1.pem"),
    *("/etc/ssl/certs/web.key", "/proc/1/environ", "/proc/self/status", "/repos/app/docker-compose.yml"),
    *("/repos/media/CLAUDE-OPS.md", "/repos/media/docker-compose.yml", "/results/session-000001.ndjson"),
    *(
        "/srv/web/.env",
        "/srv/web/prod.env",
        "/srv/x/.#id_rsa",
        "/srv/x/.bash_history",
        "/srv/x/.psql_history",
        "/srv/x/id_rsa",
    ),
    *("/var/lib/etcd/member/snap/db", "/var/log/nginx/access.log", "/var/log/nginx/error.log", "/var/log/syslog"),
    *("/var/log/app/web.env", "/work/s1/notes"),
)
"""The files that patterns find; every name above them is a directory."""


def expand(pattern: str) -> tuple[str, ...]:
    """Return the paths in `VIEW` that an absolute pattern finds, as bash finds them."""
    wanted = pattern.rstrip("/").split("/")
    tops = {"/".join(path.split("/")[: len(wanted)]) for path in VIEW}
    return tuple(sorted(top for top in tops if len(parts := top.split("/")) == len(wanted) and _fit(parts, wanted)))


def _fit(names: list[str], patterns: list[str]) -> bool:
    pairs = list(zip(names, patterns, strict=True))
    hidden = any(name.startswith(".") and not pattern.startswith(".") for name, pattern in pairs)
    return not hidden and all(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)


SCOPE = JudgeScope(
    repos_dir="/repos",
    workdir="/work/s1",
    tmpdir="/tmp/s1",  # noqa: S108 - a name, never opened
    home="/home/agent",
    handoff="/state/sessions/s1/state/handoff.json",
    forbidden_paths=("/state", "/results"),
    expand=expand,
    estate=NAMED,
    look_client=("/look",),
    looks={"git": ""},
)
TIERS = (1, 2, 3)


def sections(table: str) -> dict[str, list[str]]:
    """Return the rows of a table by the headings (``# --- heading ---``) that they stand under.

    Escaped newlines, tabs and backslashes are unfolded; other lines that begin with ``# `` are comments.
    """
    found: dict[str, list[str]] = {}
    heading = ""
    for line in (TABLES / table).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            heading = line.strip("# -") if line.startswith("# ---") else heading
        elif line:
            found.setdefault(heading, []).append(re.sub(r"\\([nt\\])", _unfolded, line))
    return found


def rows(table: str) -> list[str]:
    """Return all rows of a table."""
    return [row for section in sections(table).values() for row in section]


def _unfolded(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\"}[match[1]]


def bash(command: str) -> ToolCall:
    """Return the call that runs a command."""
    return ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": command})


def judged(command: str, tier: int | TierPolicy, scope: JudgeScope = SCOPE) -> Verdict:
    """Return the verdict on a Bash command."""
    policy = tier_policy(POLICY, tier) if isinstance(tier, int) else tier
    return judge(bash(command), tier=policy, scope=scope)
