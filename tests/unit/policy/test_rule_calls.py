"""The calls that are drawn for the rules, and what is found in what they did."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice
from random import Random
from typing import Final

import pytest

from claudeops.policy.arguments import KINDS
from claudeops.policy.rules import CommandRule
from claudeops.settings.policy import default_text
from claudeops.structs import replace
from support import rule_world as world
from support.rule_calls import CallMaker
from support.rule_cell import Opened, Seen, read_trace
from support.rule_expressions import sample
from support.rule_habits import HABITS
from support.rule_runs import Call, draw, findings
from support.rule_values import KNOWN

_MANY: Final = 3000


def drawn(rule: CommandRule, seed: int = 1) -> list[tuple[str, ...]]:
    return list(islice(CallMaker(rule=rule, name=rule.name, random=Random(seed)).calls(), _MANY))  # noqa: S311 - no secret


TAIL: Final = CommandRule(name="tail", options="-n|--lines|-NUM=int:100 -q|--quiet -v --color=?word", arguments="file*")


def test_every_kind_of_value_has_values() -> None:
    assert set(KINDS) - KNOWN == set()


def test_the_same_seed_draws_the_same_calls() -> None:
    assert drawn(TAIL) == drawn(TAIL)
    assert drawn(TAIL) != drawn(TAIL, seed=2)


@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param(r"-n \d+", id="in two words"),
        pytest.param(r"-n\d+", id="attached"),
        pytest.param(r"--lines \d+", id="long, in two words"),
        pytest.param(r"--lines=\d+", id="long, attached"),
        pytest.param(r"--l\w{0,3}=\d+", id="abbreviated"),
        pytest.param(r"-\d+", id="a number"),
        pytest.param(r"--color", id="a value that may be missing"),
        pytest.param(r"-[qv]{2,}", id="bundled"),
        pytest.param(r"-[qv]+n \d+", id="bundled, with a value at its end"),
        pytest.param(r"/srv/data/\S+ (?:\S+ )*-[nqv]+\d*", id="behind an argument"),
        pytest.param(r"--", id="dashes"),
        pytest.param(r"tail -- (?:\S+ )*-\S+", id="what looks like an option behind dashes"),
    ],
)
def test_options_are_spelled_in_every_way_that_a_program_reads(spelled: str) -> None:
    assert any(re.search(rf"(?:^| ){spelled}(?: |$)|^{spelled}", " ".join(words)) for words in drawn(TAIL))


def test_a_flag_stands_before_every_option_with_a_free_value() -> None:
    rule = CommandRule(name="column", options="-t -n -s|--separator=text", arguments="file*")
    found = {words[-3:] for words in CallMaker(rule=rule, name="column", random=Random(1)).swallowed()}  # noqa: S311
    assert found >= {("-n", "-s", "/srv/trap/plain"), ("-t", "-s", "/srv/trap/plain")}


@pytest.mark.parametrize(
    "expression",
    [r"[^\r\n]*", r"short(-[a-z-]+)?|cat|json", r"[^@=]*=.*|[^@]+", r"\d{1,5}(?:-\d{1,5})?", r"(?:a|b)+[^-\s]\x20*"],
)
def test_a_value_fits_its_regular_expression(expression: str) -> None:
    random = Random(3)  # noqa: S311 - no secret
    assert all(re.fullmatch(expression, sample(expression, random)) for _ in range(100))


# --- what was seen ----------------------------------------------------------------------------------------

CAT: Final = Call(rule="cat", given="cat notes.md", runs="/usr/bin/cat -- '/srv/data/notes.md'")
DONE: Final = Seen(executed=[("/usr/bin/cat", "/usr/bin/cat", "--", "/srv/data/notes.md")])


def opened(path: str, found: str = "", *, writing: bool = False) -> Opened:
    return Opened(path=path, found=found or path, writing=writing, directory=False)


LINKED: Final = opened("/srv/data/notes.md", "/x")
WRITTEN: Final = opened("/srv/data/x", writing=True)
did: Final = partial(replace, DONE)


def test_a_call_that_reads_its_argument_and_its_libraries_is_in_order() -> None:
    files = [opened("/etc/ld.so.cache"), opened("/usr/lib/libc.so.6"), opened("/srv/data/notes.md")]
    assert findings(CAT, replace(DONE, opened=files)) == []


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        pytest.param(Seen(), "bash executes ()", id="nothing runs"),
        pytest.param(did(executed=[*DONE.executed, ("/bin/sh", "sh")]), "executes /bin/sh: sh", id="more runs"),
        pytest.param(did(opened=[opened("/etc/shadow")]), "opens /etc/shadow", id="another file"),
        pytest.param(did(opened=[LINKED]), "opens /srv/data/notes.md, which is /x", id="a link"),
        pytest.param(did(opened=[WRITTEN]), "opens /srv/data/x for writing", id="a file is written"),
        pytest.param(did(changed=["rename(a, b)"]), "changes something: rename(a, b)", id="a change"),
        pytest.param(did(connected=[("127.1.0.1", 80)]), "connects to 127.1.0.1:80", id="a connection"),
        pytest.param(did(sockets=["/run/x.sock"]), "connects to the socket /run/x.sock", id="a socket"),
        pytest.param(did(printed=world.MARKER.encode()), "prints a secret", id="a secret"),
    ],
)
def test_what_a_call_does_beside_its_task_is_found(seen: Seen, found: str) -> None:
    assert findings(CAT, seen) == [found]


def test_a_call_that_was_killed_before_its_program_began_is_no_finding() -> None:
    assert findings(CAT, Seen(cut=True)) == []


def test_a_host_that_is_named_may_be_asked_and_no_other() -> None:
    call = Call(rule="curl", given="", runs="/usr/bin/curl -- 'http://web.example/'")
    done = Seen(executed=[("/usr/bin/curl", "/usr/bin/curl", "--", "http://web.example/")])
    assert findings(call, replace(done, connected=[("127.1.0.1", 80), (world.NAME_SERVER, 53)])) == []
    assert findings(call, replace(done, connected=[(world.TRAP_ADDRESS, 80)])) == ["connects to 127.6.6.6:80"]


def test_a_command_that_runs_others_runs_what_it_names_and_nothing_else() -> None:
    call = Call(rule="bash", given="", runs="/usr/bin/bash -c '/usr/bin/cat -- /srv/data/notes.md'")
    own = ("/usr/bin/bash", "/usr/bin/bash", "-c", "/usr/bin/cat -- /srv/data/notes.md")
    done = Seen(executed=[own, *DONE.executed], opened=[opened("/srv/data/notes.md")])
    assert findings(call, done) == []
    assert findings(call, replace(done, executed=[own, ("/usr/bin/id", "id")])) == ["executes /usr/bin/id: id"]


def test_a_trace_is_read() -> None:
    hexed = "".join(f"\\x{each:02x}" for each in b"/srv/a b")
    bash, root = '7 execve("\\x2f", ["\\x62"], []) = 0\n', "\\x2f\\x73"
    trace = (
        f'{bash}7 execve("{hexed}", ["\\x61", "{hexed}"], ["\\x41"]) = 0\n'
        f'8 openat(AT_FDCWD<{root}>, "\\x78", O_RDONLY|O_CLOEXEC) = 3<{root}\\x2f\\x79>\n'
        f'8 openat(AT_FDCWD<{root}>, "\\x78", O_WRONLY|O_CREAT, 0666) = -1 EROFS (Read-only file system)\n'
        '8 connect(3<\\x73>, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("\\x31\\x2e\\x32")}, 16) = 0\n'
        f'8 unlinkat(AT_FDCWD<{root}>, "\\x78", 0) = 0\n'
        "8 adjtimex({modes=0, offset=0}) = 0\n"
        '8 execve("\\x2f\\x7a", ["\\x7a"], []) = -1 ENOENT (No such file or directory)\n'
        "8 sendto(3<\\x73>, [{nlmsg_len=40, nlmsg_type=RTM_NEWLINK, nlmsg_flags=NLM_F_REQUEST}], 40, 0, NULL, 0) = 40\n"
    )
    assert read_trace(trace) == Seen(
        executed=[("/srv/a b", "a", "/srv/a b")],
        opened=[
            Opened(path="/s/x", found="/s/y", writing=False, directory=False),
            Opened(path="/s/x", found="", writing=True, directory=False),
        ],
        changed=['unlinkat(AT_FDCWD</s>, "x", 0) = 0', "sendto RTM_NEWLINK"],
        connected=[("1.2", 80)],
    )


def test_a_line_of_a_trace_that_was_cut_says_nothing() -> None:
    """It was killed, or its file was full: whether it opened a directory would stand behind the cut."""
    bash, opened = '7 execve("\\x2f", ["\\x62"], []) = 0\n', '7 openat(AT_FDCWD<\\x2f>, "\\x2f", O_RDONLY'
    rest = "|O_DIRECTORY) = 3<\\x2f>\n"

    whole, cut = read_trace(f"{bash}{opened}{rest}"), read_trace(f"{bash}{opened}{rest}{opened}")

    assert cut == whole == Seen(opened=[Opened(path="/", found="/", writing=False, directory=True)])


def test_of_a_system_call_that_strace_let_go_of_its_lost_number_says_nothing() -> None:
    bash = '7 execve("\\x2f", ["\\x61"], []) = 0\n'
    lost = "7 syscall_0xfffffffffffffffe(0x1, 0xc000136110, 0x17, 0, 0, 0 <detached ...>\n"
    unknown = "7 syscall_0x1f4(0x1, 0, 0, 0, 0, 0) = 0\n"
    assert read_trace(bash + lost) == Seen()
    assert read_trace(bash + unknown).changed == ["syscall_0x1f4(0x1, 0, 0, 0, 0, 0) = 0"]


def test_every_habit_has_a_reason_and_says_what_is_done() -> None:
    for habit in HABITS:
        assert habit.reason
        assert habit != replace(habit, opens=habit.writes, writes=habit.opens) or habit.executes or habit.connects


def test_what_runs_runs_in_the_same_form_when_it_is_judged_again() -> None:
    tally = draw(default_text(), seed=1, quota=1)
    assert [(call.runs, what) for call, what in tally.findings] == []
