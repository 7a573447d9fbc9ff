"""Judges the tools beside Bash: files, searches, web pages, and those of MCP servers."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from claudeops.domain import glob, regex
from claudeops.domain.model import Action
from claudeops.domain.policy import paths, urls
from claudeops.domain.policy.commands import Finding, refuse_action
from claudeops.domain.policy.identity import plain_name
from claudeops.domain.policy.look import look_of_named, look_of_tool
from claudeops.domain.policy.never import refuse_service
from claudeops.domain.shell.values import Word, WordKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from claudeops.domain.model import ToolCall
    from claudeops.domain.policy.paths import Place
    from claudeops.domain.policy.values import NamedTool, TierPolicy

MCP: Final = "mcp__"

_FILE_KEYS: Final = {"NotebookEdit": "notebook_path", "Grep": "path", "Glob": "path", "LS": "path"}
_WRITERS: Final = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_GLOB: Final = regex.Pattern(r"[*?\[{]")
_TYPES: Final = regex.Pattern(r"[a-z0-9]+")


def judge_tool(call: ToolCall, place: Place) -> Finding:
    """Return what a call of a built-in tool is; ``lines`` holds what the operator's patterns are compared with."""
    finding = _JUDGES.get(call.tool_name, _file)(call, place)
    look = look_of_tool(call, place)
    finding.looks += [] if look is None else [look]
    return finding


def judge_named(call: ToolCall, tier: TierPolicy, place: Place) -> Finding:
    """Return what a call of an MCP server's tool is: allowed only where the policy names it."""
    name = call.tool_name
    named = next((tool for tool in tier.policy.tools if glob.matches(name, tool.name)), None)
    if named is None:
        return Finding(denial=f"{name}: no rule of the policy names this tool")
    if named.tier > tier.level:
        return Finding(denial=f"{name} needs tier {named.tier}: at tier {tier.number} say in the report why")
    if not named.action:
        look = look_of_named(named, call.input)
        return Finding(writes=[f"call {name}"] if named.changes else [], looks=[] if look is None else [look])
    return _action(named, call.input, tier, place)


def _action(named: NamedTool, given: Mapping[str, object], tier: TierPolicy, place: Place) -> Finding:
    service = given.get(named.service)
    if not isinstance(service, str) or not regex.fullmatch(r"[A-Za-z0-9][\w.@:/-]*", service):
        return Finding(denial=f"{named.name}: name the service in {named.service!r}")
    if named.action not in tier.action_kinds:
        return Finding(denial=f"{named.name}: tier {tier.number} has no right to a {named.action}")
    reason = refuse_service(plain_name(service), unit=False) or refuse_action(service, tier.policy, place.reach)
    return Finding(denial=reason or "", actions=[Action(kind=named.action, service=tier.policy.counted_name(service))])


def _file(call: ToolCall, place: Place) -> Finding:
    path = call.input.get(_FILE_KEYS.get(call.tool_name, "file_path"))
    word, reason = _path(path, call.tool_name)
    if word is None:
        return Finding(denial=reason)
    if call.tool_name not in _WRITERS:
        return Finding(denial=paths.readable(word, place) or "", lines=[word.text])
    writes = [] if word.text in place.reach.files else [f"write {word.text}"]
    return Finding(denial=paths.writable(word, place) or "", writes=writes, lines=[word.text])


def _listing(call: ToolCall, place: Place) -> Finding:
    word, reason = _path(call.input.get("path"), call.tool_name)
    return Finding(
        denial=reason if word is None else paths.listable(word, place) or "", lines=[word.text] if word else []
    )


def _glob(call: ToolCall, place: Place) -> Finding:
    """Judge where the files are looked for; only their names are shown."""
    pattern = call.input.get("pattern")
    if not isinstance(pattern, str) or not pattern or "\0" in pattern:
        return Finding(denial="Glob needs a pattern")
    if ".." in regex.split(r"[/{},]", pattern):
        return Finding(denial=f"{pattern}: write the pattern without '..'")
    root = call.input.get("path")
    if pattern.startswith("/"):
        root = posixpath.dirname(_GLOB.split(pattern, maxsplit=1)[0]) or "/"
    word, reason = _path(root, "Glob")
    return Finding(
        denial=reason if word is None else paths.listable(word, place) or "", lines=[word.text] if word else []
    )


def _grep(call: ToolCall, place: Place) -> Finding:
    """Judge what is searched: a file as if it were read, a directory as if all below it were."""
    word, reason = _path(call.input.get("path"), "Grep")
    if word is None:
        return Finding(denial=reason)
    glob = call.input.get("glob")
    if glob is not None and (not isinstance(glob, str) or glob.startswith("!") or regex.search(r"[{}\s/]", glob)):
        return Finding(denial=f"Grep: write a plain glob such as '*.yml', not {glob!r}")
    kind = call.input.get("type")
    if kind is not None and not (isinstance(kind, str) and _TYPES.fullmatch(kind)):
        return Finding(denial=f"Grep: {kind!r} is no type of file")
    alone = paths.readable(word, place)
    if not alone and glob is None and paths.named_like_a_file(word, place):
        return Finding(lines=[word.text])
    includes = (glob,) if isinstance(glob, str) else ()
    return Finding(
        denial=alone or paths.searchable(word, place, paths.Searched(only=includes)) or "", lines=[word.text]
    )


def _web(call: ToolCall, place: Place) -> Finding:
    url = call.input.get("url")
    if not isinstance(url, str) or not url:
        return Finding(denial="WebFetch needs a url")
    return Finding(denial=urls.refuse_url(url) or place.reach.refuse_url(url) or "", lines=[url])


def _subagent(call: ToolCall, _place: Place) -> Finding:
    if call.input.get("run_in_background"):
        return Finding(denial="a subagent runs in the foreground: leave run_in_background out")
    return Finding()


def _harmless(_call: ToolCall, _place: Place) -> Finding:
    return Finding()


def _path(path: object, tool: str) -> tuple[Word | None, str]:
    """Return a path as a word, or why it is none."""
    if not isinstance(path, str) or not path:
        return None, f"{tool} needs a path: name it, by its absolute path"
    if not path.startswith("/"):
        return None, f"{path}: write the absolute path"
    return Word(text=path, kind=WordKind.CONSTANT), ""


_JUDGES: Final[dict[str, Callable[[ToolCall, Place], Finding]]] = {
    "Glob": _glob,
    "Grep": _grep,
    "LS": _listing,
    "WebFetch": _web,
    "Task": _subagent,
    "Agent": _subagent,
    "TodoWrite": _harmless,
    "WebSearch": _harmless,
}
"""Of built-in tools that are about something else than one file."""
