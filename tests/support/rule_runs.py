"""The rules, executed: calls that the gate allows are run under strace, and what they do is held against what they may.

A call may start its own program, open what its arguments name and what `support.rule_habits` lists, and connect to the
hosts in its arguments. Everything else is a finding. ``python -m support.rule_runs`` runs as many calls as one likes.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from claudeops.domain.calls import ToolCall, VerdictKind
from claudeops.policy.policy_file import read_document
from claudeops.policy.rule_book import FIND, SHELLS, WRAPPERS
from claudeops.policy.rules import CommandRule
from claudeops.policy.tiers import JudgeScope, Policy, explain, parse_policy, tier_policy
from claudeops.settings.policy import default_text
from support import rule_world as world
from support.rule_calls import CallMaker
from support.rule_cell import STAND_INS, Seen, cell_fault, installed, run
from support.rule_habits import Habit, fits, habits_of

LEAST: Final = 90  # calls of each rule
_VAIN: Final = 250  # calls in a row after which a rule is taken to have no further form
_BATCH: Final = 400
_THIS_MACHINE: Final = ("127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104 - seen, not bound
_ROOMS: Final = frozenset(
    {"/", "/etc", "/run", "/run/host", "/usr", "/usr/local", "/usr/local/lib", "/dev", "/var"}
)  # directories on the way to what a program looks for
# Where a file is not there, gzip's programs look for its packed form.
_PACKED: Final = re.compile(r"(?:[.]gz|[.-]z|-gz|_z|[.]Z|[.]zip|[.]ZIP|[.]tgz|[.]taz)\Z")
_NUMBER: Final = re.compile(r"\d+")
# All of this machine may be asked; the trap is on it, too.
_NEVER: Final = f'extends = "default"\n[never]\nhosts = ["{world.TRAP_ADDRESS}"]\n'
_FIND: Final = CommandRule(name=FIND)
_WRAPPED: Final = (
    ("df", "-h", world.DATA),
    ("cat", f"{world.DATA}/notes.md"),
    ("tail", "-n", "3", "/var/log/app/app.log"),
    ("ls", "-la", world.DATA),
    ("uptime",),
    ("cat", f"{world.DATA}/server.key"),
    ("sh", "-c", "id"),
)
_WRAPPING: Final = frozenset(wrapper.name.split()[0] for wrapper in WRAPPERS)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that the gate allows."""

    rule: str
    given: str
    runs: str

    @property
    def words(self) -> tuple[str, ...]:
        """The program and its arguments, as bash reads them."""
        return tuple(shlex.split(self.runs))

    @property
    def inner(self) -> tuple[tuple[str, ...], ...]:
        """What a command that runs others may start: the last of its words, or those of a text for a shell in them."""
        if self.program not in _WRAPPING:
            return ()
        texts = [tuple(shlex.split(word)) for word in self.words[1:] if " " in word]
        return tuple(each[start:] for each in (self.words, *texts) for start in range(len(each)))

    @property
    def program(self) -> str:
        """The program's name."""
        return posixpath.basename(self.words[0])


@dataclass(kw_only=True)
class Tally:
    """What was run, and what it did beside its task."""

    tried: int = 0
    calls: list[Call] = field(default_factory=list)
    findings: list[tuple[Call, str]] = field(default_factory=list)

    def rules(self) -> Counter[str]:
        """Return how many calls each rule had."""
        return Counter(call.rule for call in self.calls)


# --- drawing and judging ----------------------------------------------------------------------------------


def scope() -> JudgeScope:
    """Return the places of the small machine."""
    return JudgeScope(
        repos_dir=world.REPOS,
        workdir=world.WORKDIR,
        tmpdir=world.TMPDIR,
        home=world.HOME,
        forbidden_paths=(world.STATE, world.TRAP),
        estate=world.ESTATE,
        resolve=world.resolve,
        is_file=world.is_file,
        program=lambda name: installed(name) or f"{STAND_INS}/{name}",
    )


def makers(text: str, seed: int) -> Iterator[CallMaker]:
    """Yield who draws calls of a policy's rules that only look, for each of their names."""
    document = read_document(text, default="", fragments={})
    for number, rule in enumerate((*document.commands, _FIND)):
        for name in rule.name.split("|"):
            if not rule.action and not rule.writes and not rule.look:
                shared = " ".join(group.options for group in document.groups if f"{name} ".startswith(f"{group.name} "))
                random = Random(f"{seed} {number} {name}")  # noqa: S311 - no secret
                yield CallMaker(rule=rule, name=name, random=random, group=shared)


def wrapping_makers(text: str, seed: int) -> Iterator[CallMaker]:
    """Yield who draws calls of the commands that run others, for each of their names."""
    document = read_document(text, default="", fragments={})
    for wrapper in WRAPPERS:
        rule = CommandRule(name=wrapper.name, reading="ordered", options=wrapper.options, arguments=wrapper.before)
        texts = tuple((*(("-c",) if wrapper.name in SHELLS else ()), " ".join(words)) for words in _WRAPPED)
        for name in wrapper.name.split("|"):
            if name in document.wrappers and name != FIND:
                random = Random(f"{seed} {name}")  # noqa: S311 - no secret
                yield CallMaker(rule=rule, name=name, random=random, behind=texts if wrapper.text else _WRAPPED)


def draw(text: str, seed: int, quota: int, *, only: Sequence[str] = ()) -> Tally:
    """Draw calls of every rule that only looks, until the gate has allowed enough different ones."""
    tally, where, policy = Tally(), scope(), parse_policy(_NEVER, default=text)
    for maker in (*makers(text, seed), *wrapping_makers(text, seed)):
        rule, name = maker.rule, maker.name
        if only and name not in only and name.split()[0] not in only:
            continue
        found: dict[str, Call] = {}
        vain = 0  # calls in a row that were nothing new
        for words in maker.calls():
            tally.tried, vain = tally.tried + 1, vain + 1
            given = " ".join(map(shlex.quote, words))
            runs = what_runs(given, policy, rule.tier, where)
            if runs and runs not in found:
                vain = 0
                found[runs] = Call(rule=f"{name}: {rule.options[:30]} {rule.arguments}", given=given, runs=runs)
                again = what_runs(runs, policy, rule.tier, where)
                if again != runs:
                    tally.findings.append((found[runs], f"judged again it would run {again or 'not at all'}"))
            if len(found) >= quota or vain > _VAIN:
                break
        tally.calls += found.values()
    return tally


def what_runs(command: str, policy: Policy, tier: int, where: JudgeScope) -> str:
    """Return the text that runs for a command, or "" where it does not run, or acts."""
    call = ToolCall(tool_use_id="toolu_1", tool_name="Bash", input={"command": command})
    judged = explain(call, tier=tier_policy(policy, tier), scope=where)
    allowed = judged.verdict.kind is VerdictKind.ALLOW and not judged.verdict.actions and not judged.writes
    return judged.runs if allowed else ""


# --- what was seen ----------------------------------------------------------------------------------------


def findings(call: Call, seen: Seen) -> list[str]:
    """Return what a call did that it may not."""
    habits = {habit for words in ((call.program,), *call.inner) for habit in habits_of(posixpath.basename(words[0]))}
    found = [*_executed(call, seen, habits), *_opened(call, seen, habits), *_connected(call, seen, habits)]
    found += [
        f"changes something: {each}" for each in seen.changed if not any(fits(habit.changes, each) for habit in habits)
    ]
    if world.MARKER.encode() in seen.printed:
        found.append("prints a secret")
    return list(dict.fromkeys(found))


def _executed(call: Call, seen: Seen, habits: Collection[Habit]) -> Iterator[str]:
    first, *others = seen.executed or [()]
    own = call.words[0].startswith("/")  # and not built into the shell
    if own and first[1:] != call.words and not (seen.cut and not first):
        yield f"bash executes {first[1:]!r}"
    elif not own and first:
        others = [first, *others]
    for path, *words in others:
        if (path, *words[1:]) not in call.inner and not any(fits(habit.executes, path) for habit in habits):
            yield f"executes {path}: {' '.join(words)}"


def _opened(call: Call, seen: Seen, habits: Collection[Habit]) -> Iterator[str]:
    named = _paths((*call.words[1:], *(word for words in call.inner for word in words)))
    itself = {call.words[0], world.WORKDIR}  # its own file, and where it is
    for opened in seen.opened:
        where = opened.found if opened.found.startswith("/") else opened.path  # where its links lead
        given = (opened.path, where)
        if opened.writing:
            allowed = any(fits(habit.writes, path) for habit in habits for path in given)
        else:
            allowed = where in itself or _is_named(where, named, directory=opened.directory)
            allowed = allowed or any(fits(habit.opens, path) for habit in habits for path in given)
        if not allowed:
            which = f", which is {where}" if where != opened.path else ""
            yield f"opens {opened.path}{which}{' for writing' * opened.writing}"


def _paths(words: Sequence[str]) -> set[str]:
    """Return the paths that a call names, and where their links lead."""
    texts = [text for word in words for text in (word, word.partition("=")[2]) if text.startswith("/")]
    found = {posixpath.normpath(f"/{text.lstrip('/')}") for text in texts}
    return found | set(map(world.resolve, found))


def _is_named(path: str, named: set[str], *, directory: bool) -> bool:
    if world.is_trap(path):
        return False
    within = any(path.startswith(f"{each}/") for each in named)
    on_the_way = path in _ROOMS or "/" in named or any(each.startswith(f"{path.rstrip('/')}/") for each in named)
    return path in named or _PACKED.sub("", path) in named or within or (directory and on_the_way)


def _connected(call: Call, seen: Seen, habits: Collection[Habit]) -> Iterator[str]:
    asks = any(habit.connects for habit in habits)
    allowed = {world.NAME_SERVER, *_THIS_MACHINE, *_addresses(call)} if asks else set()
    for address, port in seen.connected:
        if address.removeprefix("::ffff:") not in allowed:
            yield f"connects to {address}:{port}"
    for path in seen.sockets:
        if not any(fits(habit.sockets, path) for habit in habits):
            yield f"connects to the socket {path}"


def _addresses(call: Call) -> Iterator[str]:
    """Yield the addresses of the hosts that a call names."""
    text = " ".join(call.words[1:]).lower()
    for name, address in world.HOSTS.items():
        if name in text or address in text or re.search(rf"\b{name.partition('.')[0]}\b", text):
            yield address
    yield from (found for found in re.findall(r"[0-9a-f:.]{3,}", text) if found != world.TRAP_ADDRESS)


def execute(tally: Tally) -> None:
    """Run all calls, and note what they do that they may not."""
    absent = sorted({call.program for call in tally.calls if call.words[0].startswith(f"{STAND_INS}/")})
    for start in range(0, len(tally.calls), _BATCH):
        batch = tally.calls[start : start + _BATCH]
        seen = run([call.runs for call in batch], stand_ins=absent)
        assert not isinstance(seen, str), seen
        for call, each in zip(batch, seen, strict=True):
            tally.findings += [(call, finding) for finding in findings(call, each)]


def main() -> int:
    """Run as many calls as one likes; 1 = one of them did what it may not."""
    reader = argparse.ArgumentParser(description=main.__doc__)
    reader.add_argument("--calls", type=int, default=30_000)
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--least", type=int, default=LEAST)
    reader.add_argument("--only", nargs="*", default=(), help="programs, or names of rules")
    arguments = reader.parse_args()
    fault = cell_fault()
    if fault is not None:
        sys.stderr.write(f"{fault}\n")
        return os.EX_UNAVAILABLE
    text = default_text()
    rules = sum(1 for _ in makers(text, arguments.seed))
    tally = draw(text, arguments.seed, max(arguments.least, arguments.calls // rules), only=arguments.only)
    execute(tally)
    seen: Counter[tuple[str, str]] = Counter()
    for call, what in tally.findings:
        kind = (call.program, _NUMBER.sub("N", what.partition(": ")[0]))
        seen[kind] += 1
        if seen[kind] == 1:
            sys.stdout.write(f"{call.rule}\n  given  {call.given}\n  runs   {call.runs}\n  {what}\n\n")
    sys.stdout.writelines(f"{rule}: {count} calls\n" for rule, count in tally.rules().items() if count < LEAST)
    sys.stdout.write(f"{tally.tried} judged, {len(tally.calls)} run, {len(tally.findings)} findings\n")
    return int(bool(tally.findings))


if __name__ == "__main__":
    sys.exit(main())
