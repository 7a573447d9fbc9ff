"""What a real bash executes of generated command trees, seen by strace, beside what it must execute.

``python -m support.executed`` runs as many commands as one likes.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from claudeops.domain.shell.render import quoted, render
from claudeops.domain.shell.values import Block
from support.command_trees import Programs, Shell, TreeMaker

BATCH: Final = 100  # trees in one script
_LONGEST_RUN_SECONDS: Final = 300.0
_TRACE: Final = ("-f", "-qq", "-xx", "-v", "-s", "65536", "-e", "trace=execve", "--seccomp-bpf")
_EXECUTED: Final = re.compile(r'(?:^|.* )execve\("([^"]*)", \[((?:"[^"]*"(?:, )?)*)\],.*')
_HEX: Final = re.compile(r'"([^"]*)"')

Executed = tuple[tuple[str, ...], ...]


@dataclass(kw_only=True)
class Tally:
    """What was run, and where bash executed something else than the tree says."""

    trees: int = 0
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
    file, trace = directory / "script", directory / "trace"
    file.write_text(script, encoding="utf-8")
    subprocess.run(
        [_needed("strace"), *_TRACE, "-o", str(trace), _needed("bash"), "--norc", "--noprofile", str(file)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=directory,
        check=False,
        timeout=_LONGEST_RUN_SECONDS,
    )
    found = (_EXECUTED.fullmatch(line) for line in trace.read_text(encoding="ascii").splitlines())
    return [(_text(match[1]), *map(_text, _HEX.findall(match[2]))) for match in found if match is not None][1:]


def place_programs(directory: Path) -> Programs:
    """Make the three programs."""
    made = Programs(ok=str(directory / "ok"), no=str(directory / "no"), say=str(directory / "say"))
    for path, program in ((made.ok, "true"), (made.no, "false"), (made.say, "echo")):
        Path(path).symlink_to(f"/bin/{program}")
    return made


def compare(seed: int, commands: int, directory: Path) -> Tally:
    """Run trees drawn from ``seed`` until bash has executed that many commands."""
    programs, tally = place_programs(directory), Tally()
    maker = TreeMaker(seed, programs, unrolled=True)
    while tally.commands < commands:
        _batch([maker.block() for _ in range(BATCH)], programs, directory, tally)
    return tally


def _batch(trees: list[Block], programs: Programs, directory: Path, tally: Tally) -> None:
    marker = str(directory / "marker")
    if not Path(marker).is_symlink():
        Path(marker).symlink_to("/bin/true")
    texts = [render(tree, {}, bash=True) for tree in trees]
    script = "".join(f"{text}\n{marker} {number}\n" for number, text in enumerate(texts))
    runs: list[list[tuple[str, ...]]] = [[]]
    for path, *argv in traced(script, directory):
        if path == marker:
            runs.append([])
        else:
            assert path == argv[0], (path, argv)
            runs[-1].append(tuple(argv))
    assert len(runs) == len(trees) + 1, "bash did not reach the end of the script"
    for tree, text, run in zip(trees, texts, runs, strict=False):
        shell = Shell(programs=programs)
        shell.block(tree)
        tally.trees += 1
        tally.commands += len(run)
        if Counter(run) != Counter(shell.executed):
            missing, beside = Counter(shell.executed) - Counter(run), Counter(run) - Counter(shell.executed)
            tally.differences.append(f"{quoted(text)}\nnot executed: {missing}\nexecuted instead: {beside}")


def _text(escaped: str) -> str:
    return bytes.fromhex(escaped.replace("\\x", "")).decode()


def _needed(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, f"{name} is not installed"
    return found


def main() -> int:
    """Run as many commands as one likes; 1 = bash executed something else than a tree says."""
    reader = argparse.ArgumentParser(description=main.__doc__)
    reader.add_argument("--commands", type=int, default=100_000)
    reader.add_argument("--seed", type=int, default=0)
    arguments = reader.parse_args()
    fault = strace_fault()
    if fault is not None:
        sys.stderr.write(f"{fault}\n")
        return os.EX_UNAVAILABLE
    with tempfile.TemporaryDirectory() as directory:
        tally = compare(arguments.seed, arguments.commands, Path(directory))
    sys.stdout.writelines(f"{each}\n\n" for each in tally.differences)
    found = f"{len(tally.differences)} differences"
    sys.stdout.write(f"{tally.trees} trees, {tally.commands} commands executed, {found}\n")
    return int(bool(tally.differences))


if __name__ == "__main__":
    sys.exit(main())
