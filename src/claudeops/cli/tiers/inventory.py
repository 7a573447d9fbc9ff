"""What there is: tiers, texts of the library, commands, tools, probes; and the commands that show it.

``command-graph`` and ``tool-pool`` list it, ``show-command`` shows one of it, ``route`` says which of it would take a
text. None of them needs a database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import click
import msgspec

from claudeops import logs
from claudeops.app.limits import tier_policies, tools_by_tier
from claudeops.cli.commands.options import sentence
from claudeops.cli.probe import declared_probes
from claudeops.cli.reply import CommandResult, not_found
from claudeops.cli.with_settings import run_with_settings
from claudeops.engine.library import DIRECTORY, Libraries
from claudeops.formats.library import BUILT_IN, Library, LibraryKind, LibraryText
from claudeops.settings import Settings, TierSettings
from claudeops.settings.files import default_policy_path, library_dir
from claudeops.text import one_line
from claudeops.text.escapes import visible
from claudeops.wording import route as routing

_CLAIM: Final = "command"
_PROBE: Final = "tool"
_TIER: Final = "tier"
_MCP: Final = "mcp__"
_ROUTED: Final = 5  # matches of a text that is run anyway
_MOST_CHARACTERS: Final = 200  # of what something is for
_KINDS: Final = {LibraryKind.CHECK: "check", LibraryKind.PLAYBOOK: "playbook", LibraryKind.SKILL: "skill"}

Work = Callable[[Settings], Awaitable[CommandResult]]


class InventoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be shown or run by name."""

    name: str
    what: str  # command, tier, check, playbook, skill
    source_hint: str
    responsibility: str  # what it is for, in a sentence


def tier_number(name: str, settings: Settings) -> int | None:
    """Return the number of the tier that ``name`` means: ``tier2``, ``2`` or the tier's own name."""
    text = name.strip().lower()
    digits = text.removeprefix(_TIER)
    if digits.isascii() and digits.isdigit():
        return int(digits)
    return next((tier.number for tier in settings.tiers if tier.name == text), None)


# --- command-graph ----------------------------------------------------------------------------------------


def print_command_graph(commands: click.Group, *, as_json: bool) -> int:
    """Print every command, tier and text of the library; return the exit status."""
    return run_with_settings("command-graph", partial(_graph, commands), as_json=as_json)


async def _graph(commands: click.Group, settings: Settings) -> CommandResult:
    groups = {
        "builtins": list(_commands(commands)),
        "plugin_like": [_of_tier(tier) for tier in settings.tiers],
        "skill_like": [_of_text(text) for text in (await _library(settings)).texts],
    }
    counts = {f"{name}_count": len(entries) for name, entries in groups.items()}
    total = sum(counts.values())
    lines = [f"{total} in all"]
    for name, entries in groups.items():
        lines += [f"{name} ({len(entries)}):", *(f"  {entry.name}: {entry.responsibility}" for entry in entries)]
    bodies = {name: [_entry(entry) for entry in entries] for name, entries in groups.items()}
    return CommandResult(text="\n".join(lines), body={**counts, "total_count": total, **bodies})


def _entry(entry: InventoryEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "source_hint": entry.source_hint,
        "what": entry.what,
        "responsibility": entry.responsibility,
    }


# --- show-command -----------------------------------------------------------------------------------------


def show_command(commands: click.Group, name: str, *, as_json: bool) -> int:
    """Print what a tier, a command or a text of the library is for; return the exit status."""
    return run_with_settings("show-command", partial(_shown, commands, name), as_json=as_json, target=name)


async def _shown(commands: click.Group, name: str, settings: Settings) -> CommandResult:
    number = tier_number(name, settings)
    tier = next((one for one in settings.tiers if one.number == number), None)
    if tier is not None:
        return _found(name, _of_tier(tier), _tier_facts(tier, settings))
    if number is not None:
        message = f"There is no tier {number}: CLAUDEOPS_MAX_TIER is {settings.ladder.max_tier}."
        return not_found("tier_not_found", name, message)
    for entry in _commands(commands):
        if entry.name == name:
            return _found(name, entry, {})
    text = _text_named(name, await _library(settings))
    if text is not None:
        return _found(name, _of_text(text), {"tier": text.tier, "about": list(text.about), "text": visible(text.text)})
    message = f"There is nothing called {visible(name)!r}; `claudeops command-graph` lists all that there is."
    return not_found("command_not_found", name, message)


def _found(name: str, entry: InventoryEntry, more: Mapping[str, object]) -> CommandResult:
    body = {
        "name": name,
        "found": True,
        **{key: value for key, value in _entry(entry).items() if key != "name"},
        **more,
    }
    lines = [f"{entry.name} ({entry.what}): {entry.responsibility}", f"  in: {entry.source_hint}"]
    lines += [f"  {key}: {_said(value)}" for key, value in more.items() if value is not None]
    return CommandResult(text="\n".join(lines), body=body)


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _tier_facts(tier: TierSettings, settings: Settings) -> dict[str, object]:
    policy = tier_policies(settings)[tier.number]
    return {
        "tier": tier.number,
        "harness": tier.harness,
        "model": tier.model,
        "max_turns": tier.max_turns,
        "max_budget_usd": tier.max_budget_usd,
        "tools": list(policy.tools),
        "actions": list(policy.action_kinds),
        "dry_run": settings.ladder.dry_run,
    }


def _text_named(name: str, library: Library) -> LibraryText | None:
    """Return the text of that name, with its kind in front where two have it (``checks/disk``)."""
    fits = (text for text in library.texts if name in {text.name, f"{text.kind}/{text.name}"})
    return next(fits, None)


# --- tool-pool --------------------------------------------------------------------------------------------


def print_tool_pool(*, simple_mode: bool, include_mcp: bool, as_json: bool) -> int:
    """Print the tools that sessions have, by tier; return the exit status."""
    return run_with_settings("tool-pool", partial(_pool, simple_mode, include_mcp), as_json=as_json)


async def _pool(simple_mode: bool, include_mcp: bool, settings: Settings) -> CommandResult:  # noqa: FBT001 - bound
    by_tier = tools_by_tier(settings)
    tiers: dict[str, list[int]] = {}
    for number, names in by_tier.items():
        for name in names:
            tiers.setdefault(name, []).append(number)
    policy = str(settings.policy_path or default_policy_path())
    tools: list[dict[str, object]] = [
        {"name": name, "source_hint": policy, "what": "tool", "tiers": having}
        for name, having in sorted(tiers.items())
        if not simple_mode or len(having) == len(by_tier)
    ]
    if include_mcp:
        tools += [
            {"name": f"{_MCP}{server}", "source_hint": origin, "what": "mcp", "tiers": sorted(by_tier)}
            for server, origin in _mcp_servers(settings)
        ]
    body = {"simple_mode": simple_mode, "include_mcp": include_mcp, "tool_count": len(tools), "tools": tools}
    lines = [f"{tool['name']} (tiers {_said(tool['tiers'])}): {tool['source_hint']}" for tool in tools]
    return CommandResult(text="\n".join(lines) or "no tools", body=body)


def _mcp_servers(settings: Settings) -> Iterable[tuple[str, str]]:
    yield from ((name, "CLAUDEOPS_MCP_CONFIG") for name in sorted(settings.mcp.config or {}))
    yield from ((name, "CLAUDEOPS_TRUSTED_REPOS") for name in sorted(settings.mcp.trusted_repos))


# --- route ------------------------------------------------------------------------------------------------


def print_route(text: str, *, limit: int, as_json: bool) -> int:
    """Print which tier, probe and texts would take a text; return the exit status."""
    return run_with_settings("route", partial(_routed, text, limit), as_json=as_json, target="prompt")


async def _routed(text: str, limit: int, settings: Settings) -> CommandResult:
    found = routing.route(text, await candidates(settings), limit)
    matches = matches_of(found)
    lines = [
        f"{match.score:.2f}  {match.candidate.what} {match.candidate.name} ({match.candidate.source_hint})"
        for match in found
    ]
    body: dict[str, object] = {
        "prompt": text,
        "limit": limit,
        "match_count": len(matches),
        "matches": matches,
        **{what.value: _best(found, what) for what in (routing.What.TIER, routing.What.PROBE, routing.What.PLAYBOOK)},
    }
    return CommandResult(text=visible("\n".join(lines)), body=body)


def matches_of(found: Iterable[routing.RoutedCandidate]) -> list[dict[str, object]]:
    """Return matches as documents have them."""
    return [
        {
            "kind": _PROBE if match.candidate.what is routing.What.PROBE else _CLAIM,
            "name": match.candidate.name,
            "score": match.score,
            "source_hint": match.candidate.source_hint,
            "what": match.candidate.what.value,
            "tier": match.candidate.tier,
        }
        for match in found
    ]


async def routed_matches(text: str, settings: Settings) -> list[dict[str, object]]:
    """Return who would take a text, as documents have it."""
    return matches_of(routing.route(text, await candidates(settings), _ROUTED))


async def candidates(settings: Settings) -> Sequence[routing.Candidate]:
    """Return everybody and everything that may take a text."""
    policies = tier_policies(settings)
    tiers = [
        routing.of_tier(tier.number, tier.name, str(tier.prompt_path), policies[tier.number].action_kinds)
        for tier in settings.tiers
    ]
    texts = [routing.of_text(text, _source(text)) for text in (await _library(settings)).texts]
    probes, _fault = await declared_probes(settings)  # the doctor tells of the fault
    return [*tiers, *texts, *map(routing.of_probe, probes)]


def _best(found: Iterable[routing.RoutedCandidate], what: routing.What) -> str | None:
    return next((match.candidate.name for match in found if match.candidate.what is what), None)


# --- what the commands share ------------------------------------------------------------------------------


async def _library(settings: Settings) -> Library:
    return await Libraries(library_dir(), settings.places.repos_dir).look(logs.get_logger())


def _commands(group: click.Group, before: str = "") -> Iterable[InventoryEntry]:
    for name, command in sorted(group.commands.items()):
        path = f"{before}{name}"
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} ")
        else:
            module = getattr(command.callback, "__module__", "claudeops.cli")
            yield InventoryEntry(name=path, what="command", source_hint=str(module), responsibility=sentence(command))


def _of_tier(tier: TierSettings) -> InventoryEntry:
    words = one_line(tier.prompt_text.partition("\n\n")[0])[:_MOST_CHARACTERS]
    return InventoryEntry(
        name=f"{_TIER}{tier.number}", what=_TIER, source_hint=str(tier.prompt_path), responsibility=visible(words)
    )


def _of_text(text: LibraryText) -> InventoryEntry:
    when = text.text.partition("\n\n")[0].partition("\n")[2]
    responsibility = visible(one_line(when)[:_MOST_CHARACTERS])
    return InventoryEntry(
        name=text.name, what=_KINDS[text.kind], source_hint=_source(text), responsibility=responsibility
    )


def _source(text: LibraryText) -> str:
    if text.origin == BUILT_IN:
        return f"prompts/library/{text.kind}/{text.name}.md"
    return f"{text.origin}/{DIRECTORY}/{text.kind}/{text.name.removeprefix(f'{text.origin}/')}.md"
