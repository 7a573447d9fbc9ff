"""What a real bash executes and opens of generated commands, seen by strace, beside what was judged.

``python -m support.executed`` runs as many commands and texts as one likes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claudeops.policy.shell import parse
from claudeops.policy.shell.language import Block, Literal, SimpleCommand, UnclearError
from claudeops.policy.shell.render import quoted, render
from support.command_texts import TextMaker, TimedVerdict, World, judge, make_world
from support.command_trees import Programs, Shell, TreeMaker

BATCH: Final = 100  # trees or texts in one script
_LONGEST_RUN_SECONDS: Final = 300.0
_TRACE: Final = ("-f", "-qq", "-xx", "-y", "-v", "-s", "65536", "-e", "trace=execve,openat", "--seccomp-bpf")
_EXECUTED: Final = re.compile(r'(?:^|.* )execve\("([^"]*)", \[((?:"[^"]*"(?:, )?)*)\],.*')
_OPENED: Final = re.compile(r".*\bopenat\b.* = \d+<([^>]*)>.*")
_HEX: Final = re.compile(r'"([^"]*)"')
_SYSTEM: Final = ("/usr/", "/lib", "/etc/ld.so", "/dev/null", "/dev/fd", "/proc/", "pipe:", "/tmp/sh-thd")  # noqa: S108 - where bash puts long here-documents


@dataclass(kw_only=True)
class ProgramRun:
    """What one command executed and opened."""

    executed: list[tuple[str, ...]] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)


@dataclass(kw_only=True)
class Tally:
    """What was run, and where bash did something else than was judged."""

    texts: int = 0  # trees, or texts that were generated
    rendered: int = 0  # texts that may run
    commands: int = 0
    differences: list[str] = field(default_factory=list)


def strace_fault() -> str | None:
    """Return why nothing can be traced here, or None."""
    program = shutil.which("strace")
    if program is None:
        return "strace is not installed"
    with tempfile.TemporaryDirectory() as directory:
        tried = subprocess.run(
            [program, *_TRACE, "-o", f"{directory}/trace", "/bin/sh", "-c", "/bin/true; /bin/true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_RUN_SECONDS,
        )
    return f"strace cannot trace here: {tried.stderr.strip()[:200]}" if tried.returncode else None


def traced(script: str, directory: Path, **environment: str) -> list[tuple[str, ...]]:
    """Run a script with bash, and return the path and the arguments of everything that it executes, in order."""
    (run,) = traced_parts([script], directory, directory, **environment)
    return run.executed


def traced_parts(parts: Sequence[str], directory: Path, cwd: Path, **environment: str) -> list[ProgramRun]:
    """Run pieces of a script one after another, and return what each of them executes (its path first) and opens."""
    file, trace, marker = directory / "script", directory / "trace", str(directory / "marker")
    if not Path(marker).is_symlink():
        Path(marker).symlink_to("/bin/true")
    file.write_text("".join(f"{part}\n{marker}\n" for part in ("", *parts)), encoding="utf-8")
    subprocess.run(
        [_needed("strace"), *_TRACE, "-o", str(trace), _needed("bash"), "--norc", "--noprofile", str(file)],
        env={"LC_ALL": "C", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        check=False,
        timeout=_LONGEST_RUN_SECONDS,
    )
    runs = [ProgramRun()]
    for line in trace.read_text(encoding="ascii").splitlines():
        executed, opened = _EXECUTED.fullmatch(line), _OPENED.fullmatch(line)
        if executed is not None and _text(executed[1]) == marker:
            runs.append(ProgramRun())
        elif executed is not None:
            runs[-1].executed.append((_text(executed[1]), *map(_text, _HEX.findall(executed[2]))))
        elif opened is not None and not _text(opened[1]).startswith(_SYSTEM):
            runs[-1].opened.add(_text(opened[1]))
    assert len(runs) == len(parts) + 2, "bash did not reach the end of the script"
    return runs[1:-1]  # before the first marker bash itself begins


# --- trees ------------------------------------------------------------------------------------------------


def place_programs(directory: Path) -> Programs:
    """Make the three programs."""
    made = Programs(ok=str(directory / "ok"), no=str(directory / "no"), say=str(directory / "say"))
    for path, program in ((made.ok, "true"), (made.no, "false"), (made.say, "echo")):
        Path(path).symlink_to(f"/bin/{program}")
    return made


def compare(seed: int, commands: int, directory: Path) -> Tally:
    """Run trees drawn from ``seed`` until bash has executed that many commands."""
    programs, tally = place_programs(directory), Tally()
    maker = TreeMaker(seed, programs)
    while tally.commands < commands:
        _batch([maker.block() for _ in range(BATCH)], programs, directory, tally)
    return tally


def _batch(trees: list[Block], programs: Programs, directory: Path, tally: Tally) -> None:
    texts = [render(tree, {}, bash=True) for tree in trees]
    for tree, text, run in zip(trees, texts, traced_parts(texts, directory, directory), strict=True):
        shell = Shell(programs=programs)
        shell.block(tree)
        executed = Counter(argv[1:] for argv in run.executed)
        tally.texts += 1
        tally.rendered += 1
        tally.commands += len(run.executed)
        if executed != Counter(shell.executed) or any(path != name for path, name, *_ in run.executed):
            missing, beside = Counter(shell.executed) - executed, executed - Counter(shell.executed)
            tally.differences.append(f"{quoted(text)}\nnot executed: {missing}\nexecuted instead: {beside}")


# --- texts ------------------------------------------------------------------------------------------------


def compare_texts(seed: int, texts: int, directory: Path, *, beyond: float) -> Tally:
    """Run what texts drawn from ``seed`` are rendered as; ``beyond``: the share with more than the plain language.

    What runs executes and opens what was judged, and the text as it was given executes the same.
    """
    world, tally, maker = make_world(directory / "world"), Tally(), TextMaker(seed, beyond=beyond)
    while tally.texts < texts:
        batch = [(text, *found) for text in (maker.text() for _ in range(BATCH)) if (found := _runs(text, world))]
        tally.texts += BATCH
        tally.rendered += len(batch)
        environment = {"HOME": str(world.root / "home"), "PATH": str(world.root / "bin")}
        rendered = traced_parts([f"(\n{runs}\n)" for _, runs, _ in batch], directory, world.work, **environment)
        given = traced_parts([f"( eval {quoted(text)} )" for text, _, _ in batch], directory, world.work, **environment)
        for (text, runs, judged), run, original in zip(batch, rendered, given, strict=True):
            tally.commands += len(run.executed)
            fault = _fault(run, judged) or (None if judged.lost or "xargs" in runs else _change(run, original))
            if fault:
                tally.differences.append(f"{text}\nruns as {runs}\n{fault}")
    return tally


def _runs(text: str, world: World) -> tuple[str, TimedVerdict] | None:
    """Return what runs for a text and what was judged, or None where it may not run."""
    parsed = parse(text, known={"HOME": str(world.root / "home"), "PWD": str(world.work)})
    judged = judge(parsed, world)
    try:
        return None if judged is None else (render(parsed.block, judged.commands, bash=True), judged)
    except UnclearError:
        return None


def _fault(run: ProgramRun, judged: TimedVerdict) -> str | None:
    """Return what was executed or opened beside what was judged: every command runs once at most."""
    left = list(judged.commands.values())
    for _, *argv in run.executed:
        if any(_fits_each(each, argv) for each in judged.commands.values()):
            continue
        fitting = next((each for each in left if _fits(each, argv)), None)
        if fitting is None:
            return f"executed: {argv}"
        left = [each for each in left if each is not fitting]
    beside = run.opened - judged.files
    return f"opened: {beside}" if beside else None


def _fits(command: SimpleCommand, argv: list[str]) -> bool:
    return len(argv) == len(command.argv) and all(
        not isinstance(word, Literal) or word.text == text for word, text in zip(command.argv, argv, strict=True)
    )


def _fits_each(command: SimpleCommand, argv: list[str]) -> bool:
    """Whether ``xargs`` started this with a word of its input."""
    words = [word.text for word in command.argv if isinstance(word, Literal)]
    return command.name.endswith("/xargs") and argv[: len(words) - 3] == words[3:] and len(argv) <= len(words) - 2


def _change(run: ProgramRun, original: ProgramRun) -> str | None:
    """Return how what runs differs from the text as it was given."""
    rendered, given = (
        Counter((path, *argv[1:]) for path, *argv in each.executed if not path.endswith("/seq"))
        for each in (run, original)
    )
    if rendered == given:
        return None
    return f"executed now: {rendered - given}\nexecuted as given: {given - rendered}"


def _text(escaped: str) -> str:
    return bytes.fromhex(escaped.replace("\\x", "")).decode()


def _needed(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed"
    return found


def main() -> int:
    """Run as many commands and texts as one likes; 1 = bash executed or opened something else than was judged."""
    reader = argparse.ArgumentParser(description=main.__doc__)
    reader.add_argument("--commands", type=int, default=100_000)
    reader.add_argument("--flows", type=int, default=85_000, help="texts that try to read a secret")
    reader.add_argument("--seed", type=int, default=0)
    arguments = reader.parse_args()
    fault = strace_fault()
    if fault is not None:
        sys.stderr.write(f"{fault}\n")
        return os.EX_UNAVAILABLE
    differences = []
    for name, count, beyond in (
        ("trees", arguments.commands, None),
        ("plain texts", arguments.commands, 0.2),
        ("texts after a secret", arguments.flows, 0.8),
    ):
        with tempfile.TemporaryDirectory() as directory:
            if beyond is None:
                tally = compare(arguments.seed, count, Path(directory))
            else:
                tally = compare_texts(arguments.seed, count, Path(directory), beyond=beyond)
        differences += tally.differences
        found = f"{tally.rendered} run, {tally.commands} commands executed, {len(tally.differences)} differences"
        sys.stdout.write(f"{tally.texts} {name}, {found}\n")
        sys.stdout.flush()
    sys.stdout.writelines(f"{each}\n\n" for each in differences)
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
