"""Generated texts of the plain language and beyond it: they try to read a secret in every way that data can flow.

Among the programs one prints the files that it is given. The texts name two secrets and files beside them, spelled in
pieces, through variables, loops, ``cd``, substitutions, functions and what else bash has; a judge stands in that knows
nothing but the literal words that it is given.
"""

# ruff: noqa: E501 - tables
from __future__ import annotations

import glob
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from claudeops.policy.shell.language import Glob, Literal, Parsed, SimpleCommand, Text, Word
from claudeops.structs import replace

PROGRAMS: Final = {"ok": "true", "no": "false", "say": "echo", "show": "cat", "xargs": "xargs"}
VALUES: Final = (
    "notes",
    "key",
    "hidden/key",
    "../secret/key",
    "sub/notes",
    "hidden",
    "sub",
    "../secret",
    ".",
    "a.log",
    "a b",
    "x",
)
FILES: Final = (
    *("notes", "a.log", "sub/notes", "./b.log", "hidden/key", "../secret/key", "hid'den'/k\\ey", "hidde{n,}/key", "$'hidden/k\\x65y'"),
    *("$f", '"$f"', '"${f}"', "hidden/$n", '"$d/key"', "${d}/$n", "key", "key", "key", '"$(say hidden/key)"', "$(say hidden/key)", "~/key", "`say notes`"),
    *("*.log", "h*/k[e]y", "../*/key", '"$d"/*', "{notes,$f}", "${f:-hidden/key}", "${f%x}", "<(say x)", "<(show $f)", '"$@"', "$1", "-"),
)  # fmt: skip
WORDS: Final = (
    *("a", "'b c'", "\"d'e\"", "f\\ g", "{h,i}", "{1..3}", "$'j\\tk'", '"$f"', "$n", '"x$d"', '""', "'*'", "\\~", "=", "a=b", "#x'", "%n"),
    *('"$(say l m)"', '"n $(no; say o)"', "$((1+1))", "*.log", "'if'", "-n", "!", "'$(ok)'", '"\\$f"', "é", "~", "$?"),
)  # fmt: skip
SET: Final = (
    *("f=hidden/key", "f=notes", "f=$d/$n", 'f="$d/key"', "n=key", "n=notes", "d=hidden", "d=sub", "d=.", "d=../secret", "d=$(say hidden)"),
    *('f="$(say hidden/key)"', "f=$f", "f=x n=key", "d=$d/../hidden", "f=~/key", "f+=key", "f=(hidden/key)", "f[0]=hidden/key"),
    *("read f <<< hidden/key", "read -r d n <<< 'hidden key'", "export f=hidden/key", "declare f=hidden/key", "local f=hidden/key", "typeset n=key"),
    *("printf -v f hidden/key", "mapfile -t f <<< hidden/key", "unset f", ": ${f:=hidden/key}", "let n=1", "((n=1))", "eval f=hidden/key"),
    *("set -- hidden/key", "IFS=/", "alias show=say", "command read f <<< hidden/key", "builtin declare f=hidden/key", "readonly d=hidden"),
    *("shopt -s extglob", "getopts x f", "f=1 n=2 ok", "HOME=hidden", "PWD=hidden", "CDPATH=..", "test -v 'f[$(show hidden/key)]'", "echo() { show hidden/key; }"),
)  # fmt: skip
CDS: Final = (
    *("cd hidden", "cd sub", "cd ..", "cd missing", "cd ../secret", "cd $d", 'cd "$d"', "cd -- hidden", "cd -", "cd ./hidden/../hidden", "cd", "cd ~"),
    *("pushd hidden", "builtin cd hidden", "command cd hidden", "eval cd hidden", "cd hidden >/dev/null", "cd hi*", "CDPATH=. cd hidden", "cd -P hidden"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class World:
    """Directories of their own: programs, files to look at, and two secrets."""

    root: Path

    @property
    def work(self) -> Path:
        """Where texts run."""
        return self.root / "work"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """What no text may read."""
        return self.root / "secret" / "key", self.work / "hidden" / "key"

    def program(self, name: str) -> str:
        """Return the path of a program."""
        return str(self.root / "bin" / name)


def make_world(root: Path) -> World:
    """Make the directories."""
    world = World(root=Path(os.path.realpath(root)))
    for directory in ("bin", "home", "secret", "work/hidden", "work/sub", "work/secret"):
        (world.root / directory).mkdir(parents=True)
    for name, program in (*PROGRAMS.items(), ("seq", "seq")):  # a loop over seq is unrolled, so it never runs
        Path(world.program(name)).symlink_to(f"/usr/bin/{program}")
    for file in (
        *world.secrets,
        *(world.work / name for name in ("notes", "a.log", "b.log", "sub/notes", "x", "key", "sub/key")),
    ):
        file.write_text("hidden/key\n", encoding="utf-8")
    return world


class TextMaker:
    """Makes texts: most of the plain language, ``beyond`` of them with something that is not in it."""

    def __init__(self, seed: int, *, beyond: float = 0.3) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable is what it is to be
        self._beyond = beyond
        self._plain = True

    def text(self) -> str:
        """Return a new text."""
        self._plain = self._random.random() >= self._beyond
        head = [f"f={self._one_of(('notes', 'a.log', 'hidden/key'))} n=notes d={self._one_of(('sub', '.', 'hidden'))}"]
        head = head if self._random.random() < 0.9 else []
        head += [self._one_of(SET[:16] if self._plain else SET) for _ in range(self._random.randint(0, 1))]
        head += [self._one_of(CDS[:8])] if self._random.random() < 0.15 else []
        return "".join(f"{each}{self._separator()}" for each in [*head, *self._statements(2)])

    def _one_of(self, values: tuple[str, ...]) -> str:
        return self._random.choice(values)

    def _separator(self) -> str:
        return "\n" if self._random.random() < 0.6 else "; "

    def _statements(self, depth: int) -> list[str]:
        return [self._statement(depth) for _ in range(self._random.randint(1, 3))]

    def _block(self, depth: int) -> str:
        return "; ".join(self._statements(depth - 1))

    def _statement(self, depth: int) -> str:
        if depth == 0 or self._random.random() < 0.4:
            return self._simple()
        plain: tuple[Callable[[int], str], ...] = (
            *(self._set, self._set, self._chain, self._pipe, self._branch, self._loop, self._subshell, self._group, self._each),
        )  # fmt: skip
        return self._random.choice(plain if self._plain else (*plain, self._strange, self._strange, self._cd))(depth)

    def _word(self) -> str:
        return self._one_of(WORDS[:17] if self._plain else WORDS)

    def _simple(self) -> str:
        file = self._one_of(FILES[:18] if self._plain else FILES)
        kind = self._random.randrange(10)
        texts = {
            0: f"ok {self._word()}",
            1: f"no {self._word()} 2>&1",
            2: f"show < {file}",
            3: f'say "$(show {file})" {self._word()}',
            4: f"show <<< {self._word()}",
            5: f"ok {self._word()}; say \"$?\" 'x'",
            6: f"show <<E\n$f {self._one_of(VALUES)} \\$n\nE\n ok",
            7: f"say {self._word()} >{self._one_of(('/dev/null', '../home/out', '>../home/out', '|../home/out'))} {self._word()}",
        }
        return texts.get(kind, f"show {file} {self._one_of(('', '', '2>/dev/null', '&>/dev/null'))}")

    def _set(self, _depth: int) -> str:
        return self._one_of(SET[:16] if self._plain else SET)

    def _cd(self, _depth: int) -> str:
        return self._one_of(CDS)

    def _chain(self, depth: int) -> str:
        parts = [self._statement(depth - 1), self._statement(depth - 1), self._simple()]
        return f"{parts[0]} {self._one_of(('&&', '||'))} {parts[1]} {self._one_of(('&&', '||', '&&'))} {parts[2]}"

    def _pipe(self, depth: int) -> str:
        left = self._one_of(
            (
                "ok",
                "say a",
                "show notes",
                "! ok b",
                "say hidden/key",
                "no && ok 2>&1",
                "no || ok c >/dev/null",
                "ok d | ok 2>&1",
            )
        )
        return f"{left} {self._one_of(('|', '|&'))} {self._statement(depth - 1)}"

    def _branch(self, depth: int) -> str:
        middle = f"elif {self._simple()}; then {self._simple()}; " if self._random.random() < 0.2 else ""
        end = f"else {self._block(depth)}; " if self._random.random() < 0.5 else ""
        return f"if {self._statement(depth - 1)}; then {self._block(depth)}; {middle}{end}fi"

    def _loop(self, depth: int) -> str:
        values = [self._one_of(VALUES) for _ in range(2)]
        over = self._one_of(
            (f"{values[0]} '{values[1]}'", "{1..2}", "$(seq 2)", "hidden sub", "$f $d", f'"$d" {values[0]}', "")
        )
        return f"for {self._one_of(('f', 'n', 'd'))} in {over}; do {self._block(depth)}; done"

    def _each(self, _depth: int) -> str:
        look = self._one_of(("say a b", "show notes", "say hidden/key"))
        command = self._one_of(("say x", "ok", "show", "say $n"))
        return f"for f in $({look}); do {command} {self._one_of(('$f', chr(34) + '$f' + chr(34)))}; done"

    def _subshell(self, depth: int) -> str:
        head = f"{self._one_of(CDS[:8])} && " if self._random.random() < 0.5 else ""
        return f"( {head}{self._block(depth)} ){self._one_of(('', '', ' 2>/dev/null'))}"

    def _group(self, depth: int) -> str:
        head = f"{self._one_of(CDS[:8])}; " if self._random.random() < 0.2 else ""
        return f"{{ {head}{self._block(depth)}; }}{self._one_of(('', '', ' >/dev/null', ' < hidden/key', ' < $f'))}"

    def _strange(self, depth: int) -> str:
        inner, simple = self._block(depth), self._simple()
        return self._one_of(
            (
                *(f"while {simple}; do {inner}; break; done", f"until {simple}; do {inner}; done", f'case "$f" in *) {inner};; esac'),
                *(f"fn() {{ {inner}; }}; fn hidden/key", f"function fn {{ {inner}; }}; fn", f"eval '{simple}'", f"{simple} &", f"coproc {simple}"),
                *(f"[[ -f $f ]] && {simple}", f"[ -f hidden/key ] && {simple}", f"trap '{simple}' EXIT", f"exec {simple}", f"time {simple}"),
                *(f"say hidden/key | while read -r f; do {simple}; done", f"while read -r f; do {simple}; done < notes", "source notes", ". ./notes"),
                *(f"select f in hidden/key; do {simple}; done", f"for ((n=0;n<2;n++)); do {simple}; done", f"! {{ {inner}; }}", f"command {simple}"),
                *(f"set -- hidden/key; {simple}", f"for f do {simple}; done", "say hidden/key | xargs show", "xargs show < notes", f"({inner}) &"),
                *("exec 3<hidden/key; show <&3", "show 3<hidden/key <&3", "hash -p hidden/key ok", "bash -c 'show hidden/key'", "exit 3", "shopt -s expand_aliases"),
            )
        )  # fmt: skip


# --- the judge that stands in -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TimedVerdict:
    """What a text may run: its commands by their numbers, and the files that they may open."""

    commands: dict[int, SimpleCommand]
    files: frozenset[str]
    lost: bool  # a cd fails: what is behind it does not run, and as it was given it would


def judge(parsed: Parsed, world: World) -> TimedVerdict | None:
    """Return what may run, or None where something is refused: only literal words decide."""
    if parsed.problem or parsed.refusal:
        return None
    commands, files, lost = {}, set[str](), False
    for command in parsed.commands:
        base = world.work / (command.cwd or "")
        opened = [each.target.text for each in command.redirections if each.operator != ">&"]
        argv = _judged_words(command, base, world)
        if argv is None or command.environment:
            return None
        if command.name == "show":
            if any(isinstance(word, Text) for word in argv):
                return None
            opened += [word.text for word in argv[1:] if isinstance(word, Literal)]
        lost = lost or (command.name == "cd" and not (base / command.line.removeprefix("cd ")).is_dir())
        commands[command.number] = replace(command, argv=argv)
        files |= {os.path.realpath(base / file) for file in opened}
    secret = files & set(map(str, world.secrets))
    return None if secret else TimedVerdict(commands=commands, files=frozenset(files), lost=lost)


def _judged_words(command: SimpleCommand, base: Path, world: World) -> tuple[Word, ...] | None:
    words: list[Word] = []
    for word in command.argv:
        words += [word] if not isinstance(word, Glob) else _matches(word.pattern, base)
    if command.name in {"cd", "exit"} or not words:
        return tuple(words)
    if command.name == "xargs":  # only what prints the words that it is given
        plain = [word.text for word in words if isinstance(word, Literal)]
        fits = len(plain) == len(words) and plain[1:3] == ["-n", "1"] and plain[3] in {"ok", "say"}
        head = [Literal(world.program("xargs")), *words[1:3], Literal(world.program(plain[3]))] if fits else []
        return (*head, *words[4:]) if fits else None
    return (Literal(world.program(command.name)), *words[1:]) if command.name in PROGRAMS else None


def _matches(pattern: str, base: Path) -> list[Word]:
    """Return the names that a pattern stands for, sorted by bytes; without any it stays as it is."""
    names = sorted(glob.glob(pattern, root_dir=base))  # noqa: PTH207 - names as the shell writes them
    return [Literal(name) for name in names] or [Literal(pattern)]
