"""MCP servers of repositories that are trusted by name: what is taken, and what whoever writes one cannot ask for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError
from support.settings_world import World

LOKI = {"command": "/usr/bin/loki-mcp", "args": ["--quiet"], "env": {"LOKI_TOKEN": "token-in-the-repository"}}


def repository(world: World, name: str, servers: object, file: str = ".mcp.json") -> Path:
    directory = world.root / "repos" / name
    (directory / file).parent.mkdir(parents=True, exist_ok=True)
    (directory / file).write_text(json.dumps({"mcpServers": servers}))
    return directory


def refusal(world: World, trusted: str = "estate", **environ: str) -> str:
    with pytest.raises(ConfigurationError, match="CLAUDEOPS_TRUSTED_REPOS") as caught:
        world.settings(CLAUDEOPS_TRUSTED_REPOS=trusted, **environ)
    return str(caught.value)


def test_servers_of_trusted_repositories_join_the_operators_and_their_secrets_are_known(world: World) -> None:
    world.file("mcp.json", json.dumps({"mcpServers": {"own": {"command": "own-mcp"}}}))
    repository(world, "estate", {"loki": LOKI})
    repository(world, "tools", {"wiki": {"type": "http", "url": "https://wiki/mcp"}})
    repository(world, "stranger", {"evil": {"command": "evil"}})

    settings = world.settings(CLAUDEOPS_MCP_CONFIG="mcp.json", CLAUDEOPS_TRUSTED_REPOS="estate, tools,estate")

    wiki = {"type": "http", "url": "https://wiki/mcp"}
    assert settings.mcp.config == {"own": {"command": "own-mcp"}}
    assert settings.mcp.trusted_repos == {"loki": LOKI, "wiki": wiki}
    assert "token-in-the-repository" not in repr(settings)
    assert settings.secrets == ("token-in-the-repository",)


def test_by_default_no_repository_is_trusted(world: World) -> None:
    repository(world, "estate", {"loki": LOKI})
    assert world.settings().mcp.trusted_repos == {}


def test_a_trusted_repository_without_servers_is_fine(world: World) -> None:
    settings = world.settings(CLAUDEOPS_TRUSTED_REPOS="estate")
    assert (settings.mcp.config, settings.mcp.trusted_repos) == (None, {})


@pytest.mark.parametrize(
    "name", ["nowhere", "file", "..", ".", ".git", "estate/sub", "../repos/estate", "/etc", "loop"]
)
def test_what_is_no_name_of_a_repository_is_refused(world: World, name: str) -> None:
    (world.root / "repos" / "file").write_text("")
    (world.root / "repos" / "estate" / "sub").mkdir()
    (world.root / "repos" / "loop").symlink_to("loop")
    said = refusal(world, f"estate,{name}")
    assert f"holds {name!r}" in said
    assert said.endswith("or remove it from the list.")


def test_a_repository_may_keep_its_servers_beside_its_texts(world: World) -> None:
    repository(world, "estate", {"loki": LOKI}, ".claude-ops/mcp.json")
    loaded = world.load(CLAUDEOPS_TRUSTED_REPOS="estate")
    assert loaded.settings.mcp.trusted_repos == {"loki": LOKI}
    assert loaded.warnings == world.load().warnings


def test_of_two_files_one_serves_and_a_warning_says_which(world: World) -> None:
    repository(world, "estate", {"loki": LOKI}, ".claude-ops/mcp.json")
    repository(world, "estate", {"old": LOKI})
    loaded = world.load(CLAUDEOPS_TRUSTED_REPOS="estate")
    assert loaded.settings.mcp.trusted_repos == {"loki": LOKI}
    assert [warning for warning in loaded.warnings if "estate" in warning] == [
        "CLAUDEOPS_TRUSTED_REPOS: repository estate has two files: .claude-ops/mcp.json serves, so remove .mcp.json."
    ]


def test_the_file_beside_the_texts_counts_for_trusted_repositories_only(world: World) -> None:
    repository(world, "stranger", {"evil": {"command": "evil"}}, ".claude-ops/mcp.json")
    assert world.settings(CLAUDEOPS_TRUSTED_REPOS="estate").mcp.trusted_repos == {}


@pytest.mark.parametrize("linked", [".claude-ops", ".claude-ops/mcp.json"])
def test_a_link_beside_the_texts_leads_not_out_of_the_repository(world: World, linked: str) -> None:
    stranger = repository(world, "stranger", {"evil": {"command": "evil"}}, ".claude-ops/mcp.json")
    link = world.root / "repos" / "estate" / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(stranger / linked)
    assert "leads out of it" in refusal(world)
    link.unlink()
    link.symlink_to("nowhere")
    assert "leads nowhere" in refusal(world)


@pytest.mark.parametrize("target", ["..", ".", "/", "../../cwd"])
def test_a_link_that_leads_out_of_the_repositories_is_refused(world: World, target: str) -> None:
    (world.root / "repos" / "link").symlink_to(target)
    assert "leads out of" in refusal(world, "link")


def test_a_link_to_a_file_outside_the_repository_is_refused(world: World) -> None:
    elsewhere = repository(world, "stranger", {"evil": {"command": "evil"}})
    (world.root / "repos" / "estate" / ".mcp.json").symlink_to(elsewhere / ".mcp.json")
    assert "leads out of it" in refusal(world)


def test_a_link_that_leads_nowhere_is_not_taken_for_no_file(world: World) -> None:
    (world.root / "repos" / "estate" / ".mcp.json").symlink_to("gone.json")
    assert "leads nowhere" in refusal(world)


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "no JSON": ("{", "not valid JSON"),
        "no servers": ("{}", '"mcpServers"'),
        "blank": (" ", "is empty"),
        "too long": (" " * 70_000 + "{}", "longer than 65536 bytes"),
    }.values(),
)
def test_a_file_with_a_mistake_is_refused(world: World, text: str, words: str) -> None:
    (world.root / "repos" / "estate" / ".mcp.json").write_text(text)
    said = refusal(world)
    assert words in said
    assert "estate/.mcp.json" in said


@pytest.mark.parametrize(
    "server",
    [
        {"command": "${DAEMONS}"},
        {"command": "a", "args": ["--token=${DAEMONS:-x}"]},
        {"command": "a", "env": {"T": "${DAEMONS}"}},
        {"url": "https://evil/${DAEMONS}"},
        {"url": "https://evil", "headers": {"X": "${an odd name}"}},
        {"url": "https://evil", "headers": {"${DAEMONS}": "x"}},
    ],
    ids=["command", "args", "env", "url", "header", "name of a header"],
)
def test_a_repository_cannot_ask_for_variables(world: World, server: dict[str, object]) -> None:
    repository(world, "estate", {"x": server})
    said = refusal(world, DAEMONS="only-the-daemon-knows")
    assert "the operator's own file" in said
    assert "CLAUDEOPS_MCP_CONFIG" in said
    assert "only-the-daemon-knows" not in said


@pytest.mark.parametrize(
    ("server", "words"),
    {
        "a program for headers": ({"url": "https://x", "headersHelper": "evil"}, "'headersHelper'"),
        "a server inside the CLI": ({"type": "sdk", "command": "a"}, '"type"'),
        "headers that are a text": ({"url": "https://x", "headers": "x"}, '"headers"'),
        "two variables in one name": ({"command": "a", "env": {"X KUBE_TOKEN": "1"}}, "'X KUBE_TOKEN'"),
        "nothing to start": ({"args": []}, "neither"),
        "no object": ("evil", "neither"),
    }.values(),
)
def test_a_server_that_is_not_plain_is_refused(world: World, server: object, words: str) -> None:
    repository(world, "estate", {"x": server})
    assert words in refusal(world)


@pytest.mark.parametrize(("own", "theirs"), [("loki", "loki"), ("loki", "loki__x"), ("loki", "loki_"), ("a__b", "a")])
def test_a_server_that_could_be_taken_for_the_operators_is_refused(world: World, own: str, theirs: str) -> None:
    world.file("mcp.json", json.dumps({"mcpServers": {own: {"command": "own-mcp"}}}))
    repository(world, "estate", {theirs: LOKI})
    said = refusal(world, CLAUDEOPS_MCP_CONFIG="mcp.json")
    assert f"server {own} of CLAUDEOPS_MCP_CONFIG: rename one" in said


def test_two_repositories_with_the_same_server_are_refused(world: World) -> None:
    repository(world, "estate", {"loki": LOKI})
    repository(world, "tools", {"loki": LOKI})
    assert "server loki of repository estate: rename one" in refusal(world, "estate,tools")


def test_names_that_only_begin_alike_are_no_clash(world: World) -> None:
    repository(world, "estate", {"loki": LOKI, "loki-2": {"command": "a"}})
    repository(world, "tools", {"loki_logs": {"command": "a"}})
    settings = world.settings(CLAUDEOPS_TRUSTED_REPOS="estate,tools")
    assert set(settings.mcp.trusted_repos) == {"loki", "loki-2", "loki_logs"}
