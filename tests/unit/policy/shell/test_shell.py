"""What a Bash text is read as: words that are literal or say what else they are, and what is refused instead."""

# ruff: noqa: E501 - tables
from __future__ import annotations

import sys
from types import FrameType

import pytest

from claudeops.policy.shell import Certainty, SimpleCommand, parse
from claudeops.policy.shell.language import (
    MOST_COMMANDS,
    Glob,
    LastStatus,
    Literal,
    Output,
    Parsed,
    Set,
    StoredVariable,
    StreamFile,
    Text,
    Word,
    steps,
)
from claudeops.policy.shell.render import render
from claudeops.structs import replace

KNOWN = {"HOME": "/home/me", "PWD": "/work"}


def read(text: str) -> Parsed:
    """Read a text that must be in the language."""
    parsed = parse(text, known=KNOWN)
    assert (parsed.problem, parsed.refusal) == (None, None), text
    return parsed


def lines(text: str) -> list[list[str]]:
    """Return the arguments of every command in a text, all of them literal."""
    found = [command.argv for command in read(text).commands if command.argv]
    assert all(isinstance(word, Literal) for argv in found for word in argv), found
    return [[word.text for word in argv if isinstance(word, Literal)] for argv in found]


def command(text: str, number: int = -1) -> SimpleCommand:
    return read(text).commands[number]


def problem(text: str) -> str:
    parsed = parse(text, known=KNOWN)
    return parsed.problem or parsed.refusal or ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docker  restart\tweb", [["docker", "restart", "web"]]),
        ("d\"o\"ck'er' re\\start $'w\\x65b'", [["docker", "restart", "web"]]),
        ("docker \\\n  restart \\\n  web", [["docker", "restart", "web"]]),
        ('x "a b" \'c d\' "" e\\ f "g\\"h" "\\n"', [["x", "a b", "c d", "", "e f", 'g"h', "\\n"]]),
        ("$'a\\tb\\'c'", [["a\tb'c"]]),
        ("a; b && c || d | e\nf", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a |& b", [["a"], ["b"]]),
        ("! a; (b; c); { d; e; }", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a > /dev/null b 2>&1 c", [["a", "b", "c"]]),
        ("> /dev/null a b", [["a", "b"]]),
        ("a # b; c\n# d\ne", [["a"], ["e"]]),
        ("a 'x # y' b#c \\#d", [["a", "x # y", "b#c", "#d"]]),
        ("a <<'E' | b && c\nx $(y)\nE\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("a | b | c\nd | e 2>/dev/null\nf x", [["a"], ["b"], ["c"], ["d"], ["e"], ["f", "x"]]),
        ("a | b | c # x\n\n# y\nd 'x\n' <<E | e | f\nz\nE\ng > h", [["a"], ["b"], ["c"], ["d", "x\n"], ["e"], ["f"], ["g"]]),
        ("a <<E && b || c\nx\nE", [["a"], ["b"], ["c"]]),
        ("a {b,c}d {1..3} {} {x} {,e}", [["a", "bd", "cd", "1", "2", "3", "{}", "{x}", "e"]]),
        ("[ -f /x -a ! -d y ] && test a == b", [["[", "-f", "/x", "-a", "!", "-d", "y", "]"], ["test", "a", "==", "b"]]),
        ("a ~ ~/b '~' \\~ c~", [["a", "/home/me", "/home/me/b", "~", "~", "c~"]]),
        ("a 'x*' \"[b]\" c\\?", [["a", "x*", "[b]", "c?"]]),
    ],
)  # fmt: skip
def test_every_word_is_what_the_program_gets(text: str, expected: list[list[str]]) -> None:
    assert lines(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('h=a; x $h "$h" ${h} y$h', [["x", "a", "a", "a", "ya"]]),
        ("l='a b'; x $l \"$l\"", [["x", "a", "b", "a b"]]),
        ('e=; x $e "$e" y$e', [["x", "", "y"]]),
        ("h=a && x $h", [["x", "a"]]),
        ("x && h=a && y $h", [["x"], ["y", "a"]]),
        ("h=a; (h=b; x $h); y $h", [["x", "b"], ["y", "a"]]),
        ("h=a; (h=b) | x; y $h", [["x"], ["y", "a"]]),
        ("h=a h=b; x $h", [["x", "b"]]),
        ("h=a; h=b x $h", [["x", "a"]]),
        ("for h in a b; do x $h; done; y $h", [["x", "a"], ["x", "b"], ["y", "b"]]),
        ("for h in a b; do for i in 1 2; do x $h$i; done; done", [["x", "a1"], ["x", "a2"], ["x", "b1"], ["x", "b2"]]),
        ("for i in $(seq 2 3) {8..9}; do x $i; done", [["x", "2"], ["x", "3"], ["x", "8"], ["x", "9"]]),
        ("for i in $(seq 2) $(seq 5 -2 1); do x $i; done", [["x", "1"], ["x", "2"], ["x", "5"], ["x", "3"], ["x", "1"]]),
        ("l='a b'; for i in $l \"$l\"; do x \"$i\"; done", [["x", "a"], ["x", "b"], ["x", "a b"]]),
        ("for h in a; do x; done >/dev/null 2>&1; y $h", [["x"], ["y", "a"]]),
        ("for i in a b; do h=$i; x $h; done", [["x", "a"], ["x", "b"]]),
        ("for f in a b; do x $f; f=c; y $f; done", [["x", "a"], ["y", "c"], ["x", "b"], ["y", "c"]]),
        ('x "$HOME/a" $PWD', [["x", "/home/me/a", "/work"]]),
    ],
)  # fmt: skip
def test_a_value_that_is_certain_is_substituted(text: str, expected: list[list[str]]) -> None:
    assert lines(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x $SECRET",
        'x "${SECRET}"',
        "SECRET=1 x; y $SECRET",
        "(SECRET=1); x $SECRET",
        "x $1",
        'x "$@"',
        "a && h=1; x $h",
        "h=0; a && h=1; x $h",
        "a && h=1 || x $h",
        "if a; then for h in 1 2; do b; done; fi; x $h",
        "h=0; if a; then b; else for h in 1 2; do b; done; fi; x $h",
        "for h in 1 2; do a; done | b; x $h",
        "h=0; a || for h in 1 2; do b; done && x $h",
        "for h in a b; do x; done > $h",
        "h=0; for h in a b; do x; done < f; y $h",
        "h=0; { h=1; x; } > f; y $h",
    ],
)
def test_a_value_in_doubt_is_not_used(text: str) -> None:
    """And nothing comes from the environment."""
    assert "is not set in this command: write its value out" in problem(text)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        # the classes of holes that values beside the control flow had
        ('if true; then f=/etc/shadow; fi; cat < "$f"', "f is set in a branch: set it before"),
        ("if f=x; then a; fi", "set it before"),
        ('read -r f <<< X; cat -- "$f"', "run the look first and write its words out"),
        ("a || f=x", "f is set behind ||: set it before"),
        ("f=x | a", "f is set in a pipeline: set it before"),
        ("! f=x", "set it before"),
        ("cd / && true || cd /srv && cat root/x", "put cd first"),
        ("if cd /x; then a; fi", "put cd first"),
        ("f() { x=1; }; f; a $x", "write its commands out where it is called"),
        # what is not in the language
        ('while read -r l; do a "$l"; done', "xargs -n 1 COMMAND"),
        ("until a; do b; done", "xargs -n 1 COMMAND"),
        ("case x in a) b;; esac", "write if [ WORD = VALUE ]; then"),
        ("[[ -f x ]] && a", "use [ … ] with =, !=, -eq"),
        ("((a++))", "use [ … ] with numbers"),
        ("eval 'a b'", "write its commands out"),
        ("\\eval a", "write its commands out"),
        ("'r'ead x", "run the look first"),
        ("mapfile -t x", "run the look first"),
        ("export A=1", "write NAME=VALUE alone"),
        ("declare -x A=1", "write NAME=VALUE alone"),
        ("local a=1", "write NAME=VALUE alone"),
        ("unset A", "leave the variable as it is"),
        ("break", "leave it out"),
        ("for i in 1 2; do a && continue; done", "leave it out"),
        ("a=(1 2)", "for NAME in WORD WORD; do"),
        ("a $((1 + 2))", "write the number out"),
        ("let a=1", "write the number out"),
        ("coproc a", "use a pipe"),
        ("for ((i=0;i<3;i++)); do a; done", "for i in 1 2 3"),
        ("select a in b; do c; done", "write the loop as"),
        ("for a; do b; done", "write the loop as"),
        ("x=1; a ${x%1} ", "write what comes out of it"),
        ("a ${x:-y}", "write what comes out of it"),
        ("a > >(b)", "is not taken"),
        ("a >(b)", "use a pipe"),
        ("a $(b)", "pipe it into xargs -n 1 COMMAND"),
        ("x=$(a); b $x", "put it in double quotes"),
        ("a y$(b)", "quote it"),
        ("x='a*'; b $x", "quote it, or write it out"),
        ("x='a b'; b y$x", "put it in double quotes"),
        ("PATH=/x; a", "use another name"),
        ("IFS=,; a", "use another name"),
        ("for PATH in a b; do c; done", "use another name"),
        ("for f in *.log; do a $f; done", "write the names out"),
        ('for f in "$(a)"; do b; done', "write the names out"),
        ("for c in $(a); do b; c $c; done", "run a first, then write the names out: for c in NAME NAME; do"),
        ("for c in $(a); do b $c $c; done", "run a first"),
        ("for c in $(a); do $c; done", "run a first"),
        ("for c in $(a); do A=1 $c; done", "run a first"),
        ("for c in $(a); do b $c < f; done", "run a first"),
        ("for i in $(seq 1 x); do b; done", "write $(seq LAST)"),
        ("for a in {1..9}; do for b in {1..9}; do x; done; done", "more than 64 rounds"),
        ("a <<E\n$(b)\nE", "write its text out"),
        ('x=$(a); b <<< "$x"', "write its text out"),
        ("cd /a || exit 1", "write cd DIR && …"),
        ("x=1 || a", "what is in front of || must be a command"),
        ("> f", "write the command"),
        ("a <&3", "write < FILE, > FILE, 2>&1 or 2>/dev/null"),
        ("a 2>&-", "write < FILE, > FILE, 2>&1 or 2>/dev/null"),
        ("a > *.log", "write < FILE, > FILE"),
        ("a <<E < f\nx\nE", "one input"),
        ("a | ! b", "in front of a whole pipeline"),
        ("$(a) b", "quote it"),
        ('"$(a)" b', "is not known before it runs: write it out"),
        ("a ~root/x", "write the directory out"),
        ("a --f=~/x", "write the directory out"),
        ("trap a EXIT", "write the command at the end"),
        ("a &", "run it in the foreground with timeout"),
        ("a & b", "run it in the foreground with timeout"),
        ("declare -p", "would show the environment"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_language_says_how_to_write_it_instead(text: str, instead: str) -> None:
    assert instead in problem(text)


@pytest.mark.parametrize(
    "text",
    [
        # what the parser and bash read differently
        "re\\\nstart",
        "a \\ #; b",
        'a $"b"',
        "!'a'",
        "a {fd}>x",
        "x=(a b)#c",
        "a <<E\n`b`\nE",
        "a <<E <<F\nE\nF",
        "a <<E\nx\\\nE\nE",
        "x=1; a $x{b,c}",
        "x=1; a ${x#$(b)}",
        'a "`b "c"`"',
        "a `b \\`c\\``",
        "{a,b}{c,d}",
        "{01..10}",
        "a {1..1000}",
        "x[0]=1",
        "x+=1",
        "x=1; a ${x@P}",
        "x=1; a ${!x}",
        "[ a && b ]",
        "[ a > b ]",
        "ls [[:digit:]]*",
        "ls [!a/b]*",
        'a "$(b)"*',
        # what is no command, or too much of one
        "a 'b",
        "a )",
        "if a",
        "a <<E\nx",
        "a\rb",
        "a\u202eb",
        "a\u00a0b",
        "a\u200bb",
        "a\x00b",
        "a \ud800",
        "a" * 20_000,
        "(" * 100 + "a" + ")" * 100,
        "a\n" * (MOST_COMMANDS + 1),
        "for a in {1..60}; do b; c; d; e; f; done",
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_what_is_not_clear_is_refused(text: str) -> None:
    assert problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "for i in {1..64}; do " + "[[ a ]];" * 900 + " done",
        "".join(f"x{i}=$x{i - 1}$x{i - 1};" for i in range(1, 900)).replace("$x0", "aa"),
        "{ x=1 || " * 25 + "x=1" + "; }" * 25,
        "if [[ a ]]; then b=1; " + "elif [[ a ]]; then b=1; " * 400 + "fi",
        "(cd a;" * 25 + "b" + ")" * 25,
        'read "$(' * 18 + "a" + ')"' * 18,
        "a && " * 50 + "b",
    ],
    ids=lambda text: text[:20],
)
def test_a_text_that_grows_when_it_is_read_costs_little(text: str) -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        parse(text)
    finally:
        sys.setprofile(None)
    assert calls < 200_000


# --- words that are not literal ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("x /var/*.log", Glob("/var/*.log")),
        ("x '[a]'*", Glob("[[]a]*")),
        ("x [!a]b[^c-e]?", Glob("[!a]b[!c-e]?")),
        ("x ~/*", Glob("/home/me/*")),
        ("d='/a b'; x \"$d\"/*", Glob("/a b/*")),
        ("x [", Literal("[")),
        ("x a[b", Literal("a[b")),
        ('x "$?"', Text((LastStatus(),))),
        ("x $?", Text((LastStatus(),))),
        ('x "a$?b"', Text(("a", LastStatus(), "b"))),
        ('v=$(y); x "a$v"', Text(("a", StoredVariable("v")))),
        ('v=$(y); w="$v b"; x "$w"', Text((StoredVariable("w"),))),
        ('v=$(y); v=1; x "$v"', Literal("1")),
    ],
)
def test_a_word_that_is_not_literal_says_what_else_it_is(text: str, word: Word) -> None:
    assert command(text).argv[1] == word


def test_the_output_of_a_look_is_in_its_word_and_its_commands_before_the_one_that_gets_it() -> None:
    parsed = read('x "a $(b 1 | c) d" <(e)')
    assert [each.line for each in parsed.commands] == ["b 1", "c", "e", "x a <output> d <stream>"]
    _, text, stream = parsed.commands[-1].argv
    assert isinstance(text, Text)
    assert [part if isinstance(part, str) else type(part) for part in text.parts] == ["a ", Output, " d"]
    assert isinstance(stream, StreamFile)


def test_what_a_look_prints_is_stored_under_its_name() -> None:
    stored = [step for step in steps(read('v=$(a) && b "$v"; w="x $(c)"').block) if isinstance(step, Set)]
    assert [step.name for step in stored] == ["v", "w"]


def test_a_literal_that_is_stored_leaves_nothing_to_run() -> None:
    assert read("a=1; b='x y'").block == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for c in $(a -q); do b -f '{{.Name}}' $c; done", ["a -q", "xargs -n 1 b -f {{.Name}}"]),
        ('for c in $(a | b); do d "${c}" 2>/dev/null; done | e', ["a", "b", "xargs -n 1 d", "e"]),
        ('for c in `a`; do b "$c"; done', ["a", "xargs -n 1 b"]),
    ],
)
def test_a_loop_over_what_a_look_prints_is_an_xargs(text: str, expected: list[str]) -> None:
    found = read(text).commands
    assert [each.line for each in found] == expected
    (given,) = (each for each in found if each.name == "xargs")
    assert given.piped
    assert [each.line for each in given.feeds] == expected[: given.number]


# --- where a command is, and what surrounds it ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cwd"),
    [
        ("x", None),
        ("cd /a && x", "/a"),
        ("cd /a; x", "/a"),
        ("cd /a\ny || z\nx", "/a"),
        ("cd -- b; x", "b"),
        ("cd /a && { y; x; }", "/a"),
        ("cd /a && y | x", "/a"),
        ("cd /a && (cd b; x)", "/a/b"),
        ("cd /a && (cd /b); x", "/a"),
        ("(cd /a) && x", None),
        ("d=/a; set -e; cd $d; x", "/a"),
        ("cd /a >/dev/null && x", "/a"),
        ("{ cd /a && x; }", "/a"),
        ('y "$(cd /b && z)"; x', None),
    ],
)
def test_every_command_behind_cd_is_in_that_directory(text: str, cwd: str | None) -> None:
    assert command(text).cwd == cwd


@pytest.mark.parametrize(
    "text",
    [
        "x; cd /a",
        "x && cd /a && y",
        "cd /a | x",
        "! cd /a",
        "cd",
        "cd -",
        "cd -P /a",
        "cd /a /b",
        "cd ''",
        "cd $(y)",
        'cd "$(y)"',
        "cd /a*",
        "cd /a && cd b",
        "for d in a b; do cd $d; x; done",
        "if x; then cd /a; fi",
        "if x; then { cd /a; }; fi",
        "{ cd /a; }; x",
        "{ { cd /a; }; }; x",
        "{ cd /a; } && x",
        "cd /a || x",
    ],
)
def test_a_cd_anywhere_else_is_refused(text: str) -> None:
    assert problem(text)


def test_a_pipe_says_what_feeds_it() -> None:
    last = command("a 1 | b | c")
    assert [feed.line for feed in last.feeds] == ["a 1", "b"]
    assert last.piped
    assert not command("a | b; c").piped
    assert not command('a | b "$(c)"', 1).piped
    assert [feed.line for feed in command("a | { b; (c); }").feeds] == ["a"]
    assert command("{ a; } < f").feeds == (*command("{ a; } < f", 0).feeds, command("{ a; } < f", 0))


@pytest.mark.parametrize(
    ("text", "stdin"),
    [
        ("x <<'E'\na $b `c`\nE", "a $b `c`\n"),
        ("x <<E\na \\$b\nE", "a $b\n"),
        ("b=1; x <<E\na $b ${b}\nE", "a 1 1\n"),
        ("x <<-'E'\n\ta\n\tE", "a\n"),
        ("b=1; x <<-E\n\t\ta $b\n\tc\tE\n\tE", "a 1\nc\tE\n"),
        ("x <<< 'a b'", "a b\n"),
        ("b='1  2'; x <<< $b", "1  2\n"),
        ("x <<E\nE", ""),
        ("x", None),
    ],
)
def test_what_a_command_is_fed_is_literal(text: str, stdin: str | None) -> None:
    assert command(text).stdin == stdin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a && b 2>&1 | c", "/a && /b 2>&1 | /c"),
        ("a && b >f 2>&1 | c 2>&1 | d || e", "/a && /b >'f' 2>&1 | /c 2>&1 | /d || /e"),
        ("a 2>&1 | b | c 2>&1 | d", "/a 2>&1 | /b | /c 2>&1 | /d"),
        ("! a | b < c | d", "! /a | /b <'c' | /d"),
        ("a && ! b 2>&1 | c", "/a && ! /b 2>&1 | /c"),
    ],
)
def test_a_redirection_in_a_pipeline_is_of_its_command_alone(text: str, expected: str) -> None:
    """The parser reads the first one as the redirection of everything before it."""
    parsed = read(text)
    programs = {each.number: replace(each, argv=(Literal(f"/{each.name}"),)) for each in parsed.commands}
    assert render(parsed.block, programs, bash=True) == expected


def test_what_a_here_document_feeds_is_fed_on() -> None:
    assert [feed.line for feed in command("a <<E | b | c\nx\nE").feeds] == ["a", "b"]


def test_redirections_are_kept_with_their_targets() -> None:
    redirections = command("f=b; x <a >$f >>'c' 2>&1 &>d >|e >&2 3>g").redirections
    assert [f"{each.descriptor}{each.operator}{each.target.text}" for each in redirections] == (
        ["<a", ">b", ">>c", "2>&1", ">d", "2>&1", ">e", ">&2", "3>g"]
    )


@pytest.mark.parametrize("text", ["f=b && x < $f", "f=a; y && f=b && x < $f", "f=a; for f in b; do y; done && x < $f"])
def test_a_redirection_behind_a_list_sees_the_variables_of_its_command(text: str) -> None:
    (redirection,) = command(text).redirections
    assert redirection.target == Literal("b")


def test_redirections_of_a_group_stand_alone() -> None:
    group = command("{ a; } > /b", 0)
    assert (group.argv, [each.operator for each in group.redirections]) == ((), [">"])


def test_variables_in_front_of_a_command_are_its_own() -> None:
    assert command("A=1 B='c d' x").environment == (("A", "1"), ("B", "c d"))
    assert "is not known before it runs" in problem("A=$(b) x")


def test_a_text_with_a_problem_still_shows_the_commands_that_can_be_read() -> None:
    """One of them may be forbidden, and that is the better reason."""
    for text in (
        "while a; do rm -rf /; done",
        "f() { rm -rf /; }",
        "case x in y) rm -rf /;; esac",
        "[[ $(rm -rf /) ]]",
        "for i in *; do rm -rf /; done",
        "a $(rm -rf /)",
        "a <<E\n$(rm -rf /)\nE",
        "x[1]=2; rm -rf /",
        "if a; then x=$(rm -rf /); fi",
    ):
        parsed = parse(text)
        assert parsed.problem, text
        assert "rm -rf /" in [each.line for each in parsed.commands], text


def test_a_command_with_a_word_that_cannot_be_read_is_among_the_commands() -> None:
    parsed = parse('rm -rf "$x" /y')
    assert [each.line for each in parsed.commands] == ['rm -rf "$x" /y']
    assert parsed.problem


def test_a_command_is_listed_once_whatever_is_wrong_around_it() -> None:
    assert [each.line for each in parse('read "$(a)"').commands] == ["a", "read <output>"]


# --- what the exit status proves --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "certainties"),
    [
        ("a; b && c", "RWW"),
        ("a | b", "RW"),
        ("a || b", "NN"),
        ("! a", "N"),
        ("if a; then b; fi; c", "NNW"),
        ("(a; b); { c; d; }", "RRRW"),
        ("a && b; c", "RNW"),
        ("for i in 1 2; do a $i; done", "RW"),
        ("cd /x; a; b", "WRW"),
        ("a > /dev/null && b", "WW"),
        ("a <<E && b\nx\nE", "WW"),
        ('a "$(b)"', "NW"),
        ("a; exit; b", "NNN"),
        ("a; 'exit' 0", "NN"),
    ],
)
def test_the_status_0_of_a_text_proves_no_more_than_it_does(text: str, certainties: str) -> None:
    letters = {Certainty.NOTHING: "N", Certainty.RAN: "R", Certainty.WORKED: "W"}
    assert "".join(letters[each.certainty] for each in read(text).commands) == certainties
