"""Every rule by which settings are refused: one sentence that names the variable and the remedy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError, MissingInputError
from support.settings_world import World, make_world

SECRET = "hunter22-do-not-print"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world(tmp_path)
    world.file("blank", " \n")
    world.file("key", SECRET)
    world.file("latin-1", "grüße".encode("latin-1"))
    world.file("no-json", '{"type": ')
    world.file("list.json", "[]")
    world.file("array.json", '{"type": "array"}')
    world.file("bad-schema.json", '{"type": "objekt"}')
    world.file("long.json", json.dumps({"type": "object", "description": "x" * 131_072}))
    world.file("deep.json", "[" * 200_000)
    os.truncate(world.file("long.md", "x"), 10 * 1024 * 1024 + 1)
    world.file("long-key", "x" * (64 * 1024 + 1))
    world.file("not-executable", "#!/bin/sh\n")
    world.file("an-ssh-key", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
    (world.cwd / "empty").mkdir()
    (world.cwd / "hidden" / ".git").mkdir(parents=True)
    os.mkfifo(world.cwd / "pipe")
    return world


def case(name: str, *told: str, **environ: str) -> object:
    """Return a row: variables, and what the sentence has to hold."""
    return pytest.param(environ, told, id=name)


OIDC = {
    "CLAUDEOPS_OIDC_ISSUER": "https://id.example.com/realms/ops/",
    "CLAUDEOPS_OIDC_CLIENT_ID": "claudeops",
    "CLAUDEOPS_OIDC_CLIENT_SECRET": "hunter22-of-the-client",
    "CLAUDEOPS_PUBLIC_URL": "https://ops.example.com",
}

REFUSED = [
    # --- names
    case("misspelt", "CLAUDEOPS_INTERVALL", "nearest known name: CLAUDEOPS_INTERVAL)", CLAUDEOPS_INTERVALL="5"),
    case("misspelt-blank", "CLAUDEOPS_DRYRUN", "CLAUDEOPS_DRY_RUN", "unset", CLAUDEOPS_DRYRUN=""),
    case("two-misspelt", "CLAUDEOPS_A", "CLAUDEOPS_B", "are not settings", CLAUDEOPS_A="5", CLAUDEOPS_B="5"),
    case("far-off", "CLAUDEOPS_ZZZ", "nearest known name: CLAUDEOPS_", CLAUDEOPS_ZZZ="5"),
    case("tier-1-prompt", "CLAUDEOPS_TIER1_PROMPT", "is CLAUDEOPS_PROMPT", CLAUDEOPS_TIER1_PROMPT="p.md"),
    case("tier-10", "CLAUDEOPS_TIER10_MODEL", "unset", CLAUDEOPS_TIER10_MODEL="opus"),
    case("file-of-no-secret", "CLAUDEOPS_CRON_FILE", "is CLAUDEOPS_CRON)", CLAUDEOPS_CRON_FILE="key"),
    case("gate-off", "CLAUDE_CODE_SIMPLE", "unset it", CLAUDE_CODE_SIMPLE="1"),
    # --- numbers, words, switches
    case("no-number", "CLAUDEOPS_INTERVAL is 'soon'", "1 to 2678400 seconds", CLAUDEOPS_INTERVAL="soon"),
    case("too-low", "CLAUDEOPS_INTERVAL is '0'", "1 to", "default 3600", CLAUDEOPS_INTERVAL="0"),
    case("too-high", "CLAUDEOPS_INTERVAL is '1e9'", "to 2678400", CLAUDEOPS_INTERVAL="1e9"),
    case("not-a-number", "CLAUDEOPS_INTERVAL is 'nan'", "seconds", CLAUDEOPS_INTERVAL="nan"),
    case("infinite", "CLAUDEOPS_SESSION_TIMEOUT is 'inf'", "seconds", CLAUDEOPS_SESSION_TIMEOUT="inf"),
    case("negative-jitter", "CLAUDEOPS_JITTER is '-1'", "0 to", CLAUDEOPS_JITTER="-1"),
    case("half-a-turn", "CLAUDEOPS_TIER2_MAX_TURNS is '1.5'", "1 to 1000", CLAUDEOPS_TIER2_MAX_TURNS="1.5"),
    case("no-tier", "CLAUDEOPS_MAX_TIER is '0'", "1 to 9", CLAUDEOPS_MAX_TIER="0"),
    case("no-session", "CONCURRENT_SESSIONS is '0'", "1 to 64", CLAUDEOPS_MAX_CONCURRENT_SESSIONS="0"),
    case("no-memory", "CLAUDEOPS_SESSION_MEMORY_MB is '1'", "256 to", CLAUDEOPS_SESSION_MEMORY_MB="1"),
    case("no-process", "SESSION_PROCESSES is '1'", "128 to", CLAUDEOPS_SESSION_PROCESSES="1"),
    case("no-file", "CLAUDEOPS_SESSION_FILE_MB is '0'", "16 to", CLAUDEOPS_SESSION_FILE_MB="0"),
    case("no-disk", "CLAUDEOPS_SESSION_DISK_MB is '0'", "64 to", CLAUDEOPS_SESSION_DISK_MB="0"),
    case("free-tier", "CLAUDEOPS_TIER1_MAX_BUDGET_USD is '0'", "US dollars", CLAUDEOPS_TIER1_MAX_BUDGET_USD="0"),
    case("no-port", "CLAUDEOPS_DASHBOARD_PORT is '99999'", "65535", CLAUDEOPS_DASHBOARD_PORT="99999"),
    case("no-address", "DASHBOARD_HOST is 'web.example.com'", "127.0.0.1", CLAUDEOPS_DASHBOARD_HOST="web.example.com"),
    case("no-network", "METRICS_ALLOW holds '10.1.0.1/16'", "10.1.0.0/16", CLAUDEOPS_METRICS_ALLOW="10.1.0.1/16"),
    case("no-public-url", "CLAUDEOPS_PUBLIC_URL", "https://ops", CLAUDEOPS_PUBLIC_URL="https://a.example, ops"),
    case("password-in-a-link", "CLAUDEOPS_PUBLIC_URL", "secret", CLAUDEOPS_PUBLIC_URL="https://ada:hunter22@ops"),
    case("guessable-proxy", "CLAUDEOPS_TRUSTED_PROXY_SECRET", "openssl", CLAUDEOPS_TRUSTED_PROXY_SECRET="hunter22"),
    case(
        "oidc-alone", "OIDC_CLIENT_ID and CLAUDEOPS_OIDC_CLIENT_SECRET", CLAUDEOPS_OIDC_ISSUER="https://id.example.com"
    ),
    case("oidc-claim-alone", "CLAUDEOPS_OIDC_CLAIM is set", "CLAUDEOPS_OIDC_ISSUER", CLAUDEOPS_OIDC_CLAIM="email"),
    case(
        "oidc-without-secret",
        "CLAUDEOPS_OIDC_ISSUER is set, and CLAUDEOPS_OIDC_CLIENT_SECRET is not",
        "or unset",
        **{name: value for name, value in OIDC.items() if "SECRET" not in name},
    ),
    case("oidc-in-the-clear", "OIDC_ISSUER", "https", **{**OIDC, "CLAUDEOPS_OIDC_ISSUER": "http://id.example.com"}),
    case(
        "oidc-no-address",
        "OIDC_ISSUER",
        "such as",
        **{**OIDC, "CLAUDEOPS_OIDC_ISSUER": "https://a:hunter22@id/?x=hunter22"},
    ),
    case("oidc-no-claim", "OIDC_CLAIM is 'e mail'", "email", **{**OIDC, "CLAUDEOPS_OIDC_CLAIM": "e mail"}),
    case("oidc-nowhere", "CLAUDEOPS_PUBLIC_URL is not", **{**OIDC, "CLAUDEOPS_PUBLIC_URL": ""}),
    case(
        "oidc-odd-secret", "OIDC_CLIENT_SECRET", "not shown", **{**OIDC, "CLAUDEOPS_OIDC_CLIENT_SECRET": "hunter22 x"}
    ),
    case("no-switch", "CLAUDEOPS_DRY_RUN is 'maybe'", "true or false", CLAUDEOPS_DRY_RUN="maybe"),
    case("no-level", "CLAUDEOPS_LOG_LEVEL is 'loud'", "info, debug", CLAUDEOPS_LOG_LEVEL="loud"),
    case("no-isolation", "CLAUDEOPS_ISOLATION is 'jail'", "bubblewrap", CLAUDEOPS_ISOLATION="jail"),
    case("no-harness", "CLAUDEOPS_HARNESS is 'gpt'", "claude, codex, caliban", CLAUDEOPS_HARNESS="gpt"),
    case("no-harness-of-a-tier", "TIER2_HARNESS is 'gpt'", "claude, codex", CLAUDEOPS_TIER2_HARNESS="gpt"),
    case(
        "model-of-caliban",
        "CLAUDEOPS_TIER2_MODEL is not set",
        "on caliban have no default",
        "set it",
        CLAUDEOPS_TIER2_HARNESS="caliban",
    ),
    case(
        "ungated", "CLAUDEOPS_ALLOW_UNGATED holds 'gpt'", "not a harness", "list", CLAUDEOPS_ALLOW_UNGATED="codex,gpt"
    ),
    case("two-lines", "CLAUDEOPS_CRON", "one line", CLAUDEOPS_CRON="0 *\n* * *"),
    case("no-utf-8", "CLAUDEOPS_SITE", "UTF-8", CLAUDEOPS_SITE="caf\udce9"),
    case("flag-for-a-model", "CLAUDEOPS_TIER1_MODEL is '--bare'", "set a name", CLAUDEOPS_TIER1_MODEL="--bare"),
    case("two-models", "CLAUDEOPS_TIER3_MODEL", "set a name", CLAUDEOPS_TIER3_MODEL="opus, sonnet"),
    case("no-tool", "CLAUDEOPS_ALLOWED_TOOLS", "'Bash(docker ps'", "commas", CLAUDEOPS_ALLOWED_TOOLS="Bash(docker ps"),
    case("flag-for-a-tool", "TIER1_DISALLOWED_TOOLS", "'--x'", CLAUDEOPS_TIER1_DISALLOWED_TOOLS="Read,--x"),
    # --- contradictions
    case(
        "two-schedules",
        "CLAUDEOPS_CRON",
        "CLAUDEOPS_INTERVAL",
        "unset one",
        CLAUDEOPS_CRON="0 * * * *",
        CLAUDEOPS_INTERVAL="60",
    ),
    case(
        "jitter",
        "CLAUDEOPS_JITTER is 60 s",
        "CLAUDEOPS_INTERVAL",
        "lower",
        CLAUDEOPS_JITTER="60",
        CLAUDEOPS_INTERVAL="60",
    ),
    case("jitter-by-default", "CLAUDEOPS_JITTER", "3600 s", "lower", CLAUDEOPS_JITTER="3600"),
    case(
        "jitter-of-cron",
        "CLAUDEOPS_JITTER",
        "CLAUDEOPS_CRON",
        "lower",
        CLAUDEOPS_JITTER="300",
        CLAUDEOPS_CRON="*/5 9-17 * * *",
    ),
    case(
        "tier-above-chain",
        "CLAUDEOPS_TIER3_MAX_BUDGET_USD is 20",
        "CHAIN_BUDGET_USD, which is 15 USD unless you set it",
        "raise",
        CLAUDEOPS_TIER3_MAX_BUDGET_USD="20",
    ),
    case(
        "tier-above-set-chain",
        "CLAUDEOPS_TIER1_MAX_BUDGET_USD",
        "CLAUDEOPS_CHAIN_BUDGET_USD",
        "lower",
        CLAUDEOPS_TIER1_MAX_BUDGET_USD="3",
        CLAUDEOPS_CHAIN_BUDGET_USD="2",
    ),
    case(
        "chain-above-daily",
        "CLAUDEOPS_CHAIN_BUDGET_USD is 30",
        "CLAUDEOPS_DAILY_BUDGET_USD",
        "lower",
        CLAUDEOPS_CHAIN_BUDGET_USD="30",
    ),
    case(
        "startup", "CLAUDEOPS_STARTUP_TIMEOUT", "CLAUDEOPS_SESSION_TIMEOUT", "lower", CLAUDEOPS_STARTUP_TIMEOUT="1800"
    ),
    case(
        "silence",
        "CLAUDEOPS_SILENCE_TIMEOUT",
        "CLAUDEOPS_SESSION_TIMEOUT",
        "lower",
        CLAUDEOPS_SILENCE_TIMEOUT="60",
        CLAUDEOPS_SESSION_TIMEOUT="60",
    ),
    case(
        "two-accounts",
        "ANTHROPIC_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "unset one",
        ANTHROPIC_API_KEY=SECRET,
        CLAUDE_CODE_OAUTH_TOKEN=SECRET,
    ),
    case(
        "two-accounts-by-file",
        "ANTHROPIC_API_KEY",
        "unset one",
        ANTHROPIC_API_KEY_FILE="key",
        CLAUDE_CODE_OAUTH_TOKEN=SECRET,
    ),
    *(
        case(f"twice-{name}", name, f"{name}_FILE", "unset one", **{name: SECRET, f"{name}_FILE": "key"})
        for name in (
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDEOPS_DATABASE_URL",
            "CLAUDEOPS_CHAT_API_KEY",
            "CLAUDEOPS_TRUSTED_PROXY_SECRET",
            "CLAUDEOPS_APPRISE_URLS",
        )
    ),
    case(
        "repos-are-state",
        "CLAUDEOPS_REPOS_DIR",
        "CLAUDEOPS_STATE_DIR",
        "set another",
        CLAUDEOPS_REPOS_DIR="s",
        CLAUDEOPS_STATE_DIR="s",
    ),
    case(
        "repos-are-results",
        "CLAUDEOPS_REPOS_DIR",
        "CLAUDEOPS_RESULTS_DIR",
        "set another",
        CLAUDEOPS_REPOS_DIR="s",
        CLAUDEOPS_RESULTS_DIR="s",
    ),
    # --- schedule
    case("cron-words", "CLAUDEOPS_CRON is 'hourly'", "five crontab(5) fields", "set minute", CLAUDEOPS_CRON="hourly"),
    case("cron-nickname", "CLAUDEOPS_CRON is '@daily'", "set minute", CLAUDEOPS_CRON="@daily"),
    case("cron-seconds", "CLAUDEOPS_CRON", "five", "set minute", CLAUDEOPS_CRON="*/5 * * * * *"),
    case("cron-range", "CLAUDEOPS_CRON", "set minute", CLAUDEOPS_CRON="61 * * * *"),
    case("cron-weekday-8", "CLAUDEOPS_CRON", "set minute", CLAUDEOPS_CRON="0 0 * * 8"),
    case("cron-never", "CLAUDEOPS_CRON", "ever come due", CLAUDEOPS_CRON="0 0 30 2 *"),
    case("time-zone", "CLAUDEOPS_TIMEZONE is 'Mars/Base'", "set one such as", CLAUDEOPS_TIMEZONE="Mars/Base"),
    case("time-zone-directory", "CLAUDEOPS_TIMEZONE is 'Europe'", "set one", CLAUDEOPS_TIMEZONE="Europe"),
    case("time-zone-path", "CLAUDEOPS_TIMEZONE", "set one", CLAUDEOPS_TIMEZONE="../../etc/passwd"),
    # --- tiers
    case("tier-4-model", "CLAUDEOPS_TIER4_MODEL is not set", "lower CLAUDEOPS_MAX_TIER", CLAUDEOPS_MAX_TIER="4"),
    case(
        "tier-4-prompt",
        "CLAUDEOPS_TIER4_PROMPT is not set",
        "set it",
        CLAUDEOPS_MAX_TIER="4",
        CLAUDEOPS_TIER4_MODEL="opus",
    ),
    case("env-unset", "CLAUDEOPS_TIER1_ENV", "NOPE", "set NOPE", CLAUDEOPS_TIER1_ENV="NOPE"),
    case("env-with-value", "CLAUDEOPS_TIER1_ENV", "list names only", CLAUDEOPS_TIER1_ENV="A=b"),
    case("env-no-utf-8", "CLAUDEOPS_TIER1_ENV", "ODD", "UTF-8", CLAUDEOPS_TIER1_ENV="ODD", ODD="\udcff"),
    *(
        case(f"env-{name}", "CLAUDEOPS_TIER2_ENV", name, "remove", CLAUDEOPS_TIER2_ENV=name, **{name: SECRET})
        for name in (
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_USE_BEDROCK",
            "LD_PRELOAD",
            "NODE_OPTIONS",
            "PATH",
            "HOME",
            "CODEX_HOME",
        )
    ),
    case("read-nothing", "CLAUDEOPS_TIER1_READ", "there is nothing", "take it away", CLAUDEOPS_TIER1_READ="/nowhere/x"),
    case("read-secrets", "CLAUDEOPS_TIER1_READ names /etc", "below it", CLAUDEOPS_TIER1_READ="/usr/share,/etc"),
    case("read-secrets-by-dots", "CLAUDEOPS_TIER1_READ", "below it", CLAUDEOPS_TIER1_READ="/usr/share/../../etc"),
    case(
        "read-key", "CLAUDEOPS_TIER2_READ names", "private key of ssh", "TIER2_HOME", CLAUDEOPS_TIER2_READ="an-ssh-key"
    ),
    case("home", "CLAUDEOPS_TIER3_HOME", "not a directory", "correct it", CLAUDEOPS_TIER3_HOME="nowhere"),
    # --- files
    case("prompt-missing", "CLAUDEOPS_PROMPT", "nowhere.md", "correct the path", CLAUDEOPS_PROMPT="nowhere.md"),
    case("prompt-below-a-file", "CLAUDEOPS_PROMPT", "correct the path", CLAUDEOPS_PROMPT="key/p.md"),
    case("prompt-directory", "CLAUDEOPS_TIER2_PROMPT", "not a file", "set it", CLAUDEOPS_TIER2_PROMPT="empty"),
    case("prompt-pipe", "CLAUDEOPS_TIER2_PROMPT", "not a file", "set it", CLAUDEOPS_TIER2_PROMPT="pipe"),
    case("prompt-blank", "CLAUDEOPS_TIER3_PROMPT", "is empty", "fill it", CLAUDEOPS_TIER3_PROMPT="blank"),
    case("prompt-latin-1", "CLAUDEOPS_PROMPT", "not UTF-8", "save", CLAUDEOPS_PROMPT="latin-1"),
    case("prompt-long", "CLAUDEOPS_PROMPT", "10485760 bytes", "shorter", CLAUDEOPS_PROMPT="long.md"),
    case("path-too-long", "CLAUDEOPS_PROMPT", "cannot be read", "let user", CLAUDEOPS_PROMPT="x" * 5000),
    case("home-unknown", "CLAUDEOPS_PROMPT", "HOME", "absolute path", CLAUDEOPS_PROMPT="~/p.md", HOME=""),
    case("schema-missing", "CLAUDEOPS_SCHEMA_PATH", "correct the path", CLAUDEOPS_SCHEMA_PATH="nowhere.json"),
    case(
        "schema-no-json",
        "CLAUDEOPS_SCHEMA_PATH",
        "not valid JSON",
        "line 1",
        "correct",
        CLAUDEOPS_SCHEMA_PATH="no-json",
    ),
    case("schema-deep", "CLAUDEOPS_SCHEMA_PATH", "not valid JSON", "correct", CLAUDEOPS_SCHEMA_PATH="deep.json"),
    case("schema-list", "CLAUDEOPS_SCHEMA_PATH", "schema of an object", CLAUDEOPS_SCHEMA_PATH="list.json"),
    case("schema-array", "CLAUDEOPS_SCHEMA_PATH", '"type": "object"', "correct", CLAUDEOPS_SCHEMA_PATH="array.json"),
    case("schema-invalid", "CLAUDEOPS_SCHEMA_PATH", "draft-07", "at type", CLAUDEOPS_SCHEMA_PATH="bad-schema.json"),
    case("schema-long", "CLAUDEOPS_SCHEMA_PATH", "131071 bytes", CLAUDEOPS_SCHEMA_PATH="long.json"),
    case("mcp-missing", "CLAUDEOPS_MCP_CONFIG", "correct the path", CLAUDEOPS_MCP_CONFIG="nowhere.json"),
    case("mcp-no-servers", "CLAUDEOPS_MCP_CONFIG", "mcpServers", "write", CLAUDEOPS_MCP_CONFIG="array.json"),
    case("secret-missing", "ANTHROPIC_API_KEY_FILE", "correct the path", ANTHROPIC_API_KEY_FILE="nowhere"),
    case("secret-blank", "ANTHROPIC_API_KEY_FILE", "is empty", "fill it", ANTHROPIC_API_KEY_FILE="blank"),
    case("secret-long", "ANTHROPIC_API_KEY_FILE", "longer", ANTHROPIC_API_KEY_FILE="long-key"),
    case("key-with-blanks", "ANTHROPIC_API_KEY", "not shown", "key alone", ANTHROPIC_API_KEY=f"x {SECRET}"),
    # --- programs
    case("bin-not-on-path", "CLAUDEOPS_CLAUDE_BIN is 'klaude'", "full path", CLAUDEOPS_CLAUDE_BIN="klaude"),
    case("bin-missing", "CLAUDEOPS_CLAUDE_BIN", "set the path", CLAUDEOPS_CLAUDE_BIN="./klaude"),
    case(
        "codex-missing",
        "no codex CLI on PATH",
        "set CLAUDEOPS_CODEX_BIN",
        CLAUDEOPS_HARNESS="codex",
        CLAUDEOPS_ALLOW_UNGATED="codex",
    ),
    case(
        "caliban-missing",
        "CLAUDEOPS_CALIBAN_BIN is 'kaliban'",
        "full path",
        CLAUDEOPS_TIER3_HARNESS="caliban",
        CLAUDEOPS_TIER3_MODEL="m",
        CLAUDEOPS_CALIBAN_BIN="kaliban",
        CLAUDEOPS_ALLOW_UNGATED="caliban",
    ),
    case("bin-not-executable", "CLAUDEOPS_CLAUDE_BIN", "executable", CLAUDEOPS_CLAUDE_BIN="./not-executable"),
    # --- directories
    case("repos-missing", "nothing to watch", "set CLAUDEOPS_REPOS_DIR", CLAUDEOPS_REPOS_DIR="nowhere"),
    case("repos-file", "nothing to watch", "set CLAUDEOPS_REPOS_DIR", CLAUDEOPS_REPOS_DIR="key"),
    case("repos-empty", "nothing to watch", "set CLAUDEOPS_REPOS_DIR", CLAUDEOPS_REPOS_DIR="empty"),
    case("repos-hidden", "nothing to watch", "set CLAUDEOPS_REPOS_DIR", CLAUDEOPS_REPOS_DIR="hidden"),
    # --- URLs
    *(
        case(f"database-{number}", "CLAUDEOPS_DATABASE_URL", "set sqlite:///", CLAUDEOPS_DATABASE_URL=url)
        for number, url in enumerate(
            (
                f"mysql://u:{SECRET}@db/ops",
                f"postgresql+asyncpg://u:{SECRET}@db/ops",
                SECRET,
                "sqlite://",
                "sqlite:///",
                "sqlite:///:memory:",
                "sqlite:///file:ops?mode=memory",
            )
        )
    ),
    *(
        case(f"database-password-{number}", "CLAUDEOPS_DATABASE_URL", "percent-encode", CLAUDEOPS_DATABASE_URL=url)
        for number, url in enumerate(
            f"postgresql://u:{SECRET}{end}@db/ops" for end in ("@", "#", "/", "?", " ", "[", "@x:y")
        )
    ),
    *(
        case(f"base-url-{number}", "ANTHROPIC_BASE_URL", "set it to one such as", ANTHROPIC_BASE_URL=url)
        for number, url in enumerate(
            (
                SECRET,
                f"ftp://{SECRET}",
                f"https:///{SECRET}",
                f"https://h:{SECRET}",
                f"https://h/{SECRET} x",
                f"https://h..{SECRET}",
            )
        )
    ),
    case("heartbeat", "CLAUDEOPS_HEARTBEAT_URL", "set it", CLAUDEOPS_HEARTBEAT_URL=SECRET),
]


@pytest.mark.parametrize(("environ", "told"), REFUSED)
def test_wrong_setting_is_refused_in_one_sentence_without_a_secret(
    world: World, environ: dict[str, str], told: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        world.load(environ)

    sentence = str(caught.value)
    assert [part for part in told if part not in sentence] == []
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert ". " not in sentence
    assert SECRET not in sentence
    # What a traceback would show beside it: a parser's own message may quote the value.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("CLAUDEOPS_INTERVAL", "sk-ant-api03-0123456789", id="number"),
        pytest.param("CLAUDEOPS_TIER1_MODEL", "my key: sk-ant-api03-0123456789", id="model"),
        pytest.param("CLAUDEOPS_LOG_LEVEL", "sk-ant-api03-0123456789", id="choice"),
        pytest.param("CLAUDEOPS_CRON", "sk-ant-api03-0123456789", id="cron"),
    ],
)
def test_key_pasted_into_the_wrong_variable_is_not_shown(world: World, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as caught:
        world.load({name: value})

    assert "sk-ant" not in str(caught.value)


def test_endless_value_is_cut(world: World) -> None:
    with pytest.raises(ConfigurationError) as caught:
        world.load(CLAUDEOPS_INTERVAL="9" * 10_000 + "x")

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"CLAUDEOPS_PROMPT": "nowhere.md"}, id="prompt"),
        pytest.param({"CLAUDEOPS_SCHEMA_PATH": "nowhere.json"}, id="schema"),
        pytest.param({"ANTHROPIC_API_KEY_FILE": "nowhere"}, id="secret"),
        pytest.param({"CLAUDEOPS_CLAUDE_BIN": "./nowhere"}, id="binary"),
        pytest.param({"CLAUDEOPS_TIER1_HOME": "nowhere"}, id="home"),
        pytest.param({"CLAUDEOPS_REPOS_DIR": "nowhere"}, id="repos"),
    ],
)
def test_file_that_is_not_there_is_told_apart(world: World, environ: dict[str, str]) -> None:
    with pytest.raises(MissingInputError):
        world.load(environ)


def test_missing_default_prompt_names_its_variable(world: World) -> None:
    (world.root / "app" / "prompts" / "tier1-observe.md").write_text("")

    with pytest.raises(ConfigurationError, match=r"default of CLAUDEOPS_PROMPT leads to .*tier1-observe.md"):
        world.load()
