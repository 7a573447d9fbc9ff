"""What programs do beside their task, and why that is harmless: files that they read, programs that they start.

A path is a regular expression that must fit all of it; a program is named by the last part of its path. Whatever is not
here is a finding of `support.rule_runs`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Habit:
    """What some programs do."""

    programs: str  # by ``|``; ``*``: all
    reason: str
    opens: str = r"[^\s\S]"  # nothing
    writes: str = r"[^\s\S]"
    executes: str = r"[^\s\S]"  # the paths of programs
    changes: str = r"[^\s\S]"  # calls of the kernel
    sockets: str = r"[^\s\S]"
    connects: bool = False  # to the hosts that its arguments name, and to the name server


HABITS: Final = (
    Habit(
        programs="*",
        reason="what the distribution installed: libraries, locales, time zones; none of it is the operator's",
        opens=r"/(usr/)?(lib(32|64|exec)?|share)(/.*)?|/etc/ld\.so\.(cache|preload)|/etc/localtime|/etc/timezone",
    ),
    Habit(
        programs="*",
        reason="bash starts: its script, its user's name, its terminal",
        opens=r"/calls/\d+|/dev/tty|/etc/(nsswitch\.conf|passwd)",
        writes=r"/dev/tty",
        sockets=r"/var/run/nscd/socket|/run/nscd/socket",
    ),
    Habit(
        programs="*",
        reason="its own process, and what the kernel says of itself",
        opens=r"/proc/(self|\d+)/(maps|auxv|cgroup|mountinfo)|/proc/(filesystems|mounts|cpuinfo|meminfo|stat)|/proc/sys/(vm|kernel)/\w+|/sys/kernel/mm/.*|/sys/devices/system/cpu(/.*)?|/sys/fs/cgroup(/.*)?|/dev/(null|urandom|random)",
        writes=r"/dev/null",
    ),
)
"""In the order of the rules' files."""


def habits_of(program: str) -> tuple[Habit, ...]:
    """Return the habits of a program."""
    return tuple(habit for habit in HABITS if habit.programs == "*" or program in habit.programs.split("|"))


def fits(pattern: str, text: str) -> bool:
    """Whether an expression fits the whole of a text."""
    return re.fullmatch(pattern, text) is not None
