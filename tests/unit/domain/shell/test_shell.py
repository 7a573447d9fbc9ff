"""What a Bash text is taken apart into, and what is refused because bash could read it differently."""

from __future__ import annotations

import pytest

from claudeops.domain.shell import SimpleCommand, WordKind, parse


def lines(text: str) -> list[list[str]]:
    """Return the arguments of every command in a text that must be clear."""
    parsed = parse(text)
    assert parsed.problem is None, parsed.problem
    return [[word.text for word in command.argv] for command in parsed.commands if command.argv]


def command(text: str, number: int = -1) -> SimpleCommand:
    parsed = parse(text)
    assert parsed.problem is None, parsed.problem
    return parsed.commands[number]


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
        ("while a; do b; done; until c; do d; done", [["a"], ["b"], ["c"], ["d"]]),
        ("case $(a) in x|$(b)) c;; *) d;; esac", [["a"], ["b"], ["c"], ["d"]]),
        ("a > /dev/null b 2>&1 c", [["a", "b", "c"]]),
        ("> /dev/null a b", [["a", "b"]]),
        ("a <(b) >(c)", [["b"], ["c"], ["a", "/dev/fd/63", "/dev/fd/63"]]),
        ("x=$(a); y=1 b", [["a"], ["b"]]),
        ("a # b; c\n# d\ne", [["a"], ["e"]]),
        ("a 'x # y' b#c \\#d", [["a", "x # y", "b#c", "#d"]]),
        ("a <<'E' | b && c\nx $(y)\nE\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("a <<E\n$(b)\nE", [["b"], ["a"]]),
        ("a <<< $(b)", [["b"], ["a"]]),
        ("[ -f /x ] && [[ $(a) == b* ]]", [["[", "-f", "/x", "]"], ["a"]]),
        ("a {b,c}d {1..3} {} {x}", [["a", "bd", "cd", "1", "2", "3", "{}", "{x}"]]),
        ("f() { a \"$1\" \"$@\"; }; f x; f 'y z'", [["a", "x", "x"], ["a", "y z", "y z"]]),
        ("f() { rm; }; ls", [["ls"]]),
    ],
)  # fmt: skip
def test_every_simple_command_is_found(text: str, expected: list[list[str]]) -> None:
    assert lines(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('h=a; x $h "$h" ${h} y$h', [["x", "a", "a", "a", "ya"]]),
        ("l='a b'; x $l \"$l\"", [["x", "a", "b", "a b"]]),
        ('e=; x $e "$e" y', [["x", "", "y"]]),
        ("for h in a b; do x $h; done", [["x", "a"], ["x", "b"]]),
        ("for h in a b; do for i in 1 2; do x $h$i; done; done", [["x", "a1"], ["x", "a2"], ["x", "b1"], ["x", "b2"]]),
        ("for i in $(seq 2 3); do x $i; done", [["seq", "2", "3"], ["x", "2"], ["x", "3"]]),
        ("l=(a 'b c'); for i in \"${l[@]}\"; do x \"$i\"; done", [["x", "a"], ["x", "b c"]]),
        ("h=a && x $h", [["x", "a"]]),
    ],
)  # fmt: skip
def test_known_values_are_put_in(text: str, expected: list[list[str]]) -> None:
    assert lines(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "if a; then h=b; fi; x $h",
        "h=a; if b; then h=c; fi; x $h",
        "h=a; b && h=c; x $h",
        "h=a; while b; do x $h; h=c; done",
        "h=a; f() { h=b; }; f; x $h",
        "h=$(a); x $h",
        "a | while read -r h; do x $h; done",
        "for h in $(a); do x $h; done",
    ],
)
def test_a_value_in_doubt_is_dynamic(text: str) -> None:
    commands = [command for command in parse(text).commands if command.name == "x"]
    assert commands
    assert all(command.argv[1].kind is WordKind.DYNAMIC for command in commands)


def test_a_subshell_keeps_its_values_to_itself() -> None:
    assert lines("h=a; (h=b); x $h; h=c | y; x $h") == [["x", "a"], ["y"], ["x", "a"]]


@pytest.mark.parametrize(
    "text",
    [
        "x $SECRET",
        'x "${SECRET:-y}"',
        "false && SECRET=1; x $SECRET",
        "if a; then SECRET=1; fi; x $SECRET",
        "f() { SECRET=1; }; x $SECRET",
        "SECRET=1 x; y $SECRET",
        "x $1",
        'x "$@"',
    ],
)
def test_the_environment_is_never_read(text: str) -> None:
    assert "is not set in this command" in (parse(text).problem or "")


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
        "x=1; a ${x/$(b)/c}",
        "x=1; a ${x:-$(b)}",
        'a "`b "c"`"',
        "a `b \\`c\\``",
        "{a,b}{c,d}",
        "{a,{b,c}}",
        "{01..10}",
        # what cannot be told beforehand
        "a &",
        "a & b",
        "export A=1",
        "declare -p",
        "unset A",
        "((a++))",
        "a $((x + 1))",
        "x=$(b); a $((x))",
        "for ((i=0;i<3;i++)); do a; done",
        "select a in b; do c; done",
        "coproc a",
        "x[0]=1",
        "x+=1",
        "x=1; a ${x@P}",
        "x=1; a ${!x}",
        "[[ -v x ]]",
        "x=$(b); [[ $x -eq 1 ]]",
        "[ a && b ]",
        "[ a > b ]",
        "if a; then f() { b; }; fi",
        "f() { a; }; f() { b; }",
        "f() { f; }; f",
        "f() { a; }; time f",
        "command_not_found_handle() { a; }; b",
        "f() { a; }; X=1 f",
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
        "for a in {1..100}; do for b in {1..100}; do x; done; done",
        "for i in $(seq 1 1000); do a; done",
        "a {1..1000}",
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_what_is_not_clear_is_refused_with_a_reason(text: str) -> None:
    parsed = parse(text)
    assert parsed.problem or parsed.refusal


@pytest.mark.parametrize(
    ("text", "kind", "single", "prefix"),
    [
        ("x /var/*.log", WordKind.PATTERN, False, ""),
        ("x ~/a", WordKind.DYNAMIC, True, ""),
        ("x --f=~/a", WordKind.DYNAMIC, True, ""),
        ("x $(a)", WordKind.DYNAMIC, False, ""),
        ('x "$(a)"', WordKind.DYNAMIC, True, ""),
        ('x --since="$(a)"', WordKind.DYNAMIC, True, "--since="),
        ("x b$(a)c", WordKind.DYNAMIC, False, "b"),
        ("x '*' \\*", WordKind.CONSTANT, True, ""),
        ("x '~'", WordKind.CONSTANT, True, ""),
        ("x $((1 + 2))", WordKind.DYNAMIC, True, ""),
        ("f='*.log'; x $f", WordKind.PATTERN, False, ""),
        ("f='*.log'; x \"$f\"", WordKind.CONSTANT, True, ""),
        ('for f in /var/*.log; do x "$f"; done', WordKind.PATTERN, True, ""),
    ],
)  # fmt: skip
def test_a_word_says_how_much_of_it_is_known(text: str, kind: WordKind, single: bool, prefix: str) -> None:
    word = command(text).argv[1]
    assert (word.kind, word.single, word.prefix) == (kind, single, prefix)


def test_a_pattern_keeps_its_quoted_wildcards_apart() -> None:
    assert command("x '[a]'*").argv[1].text == "[[]a]*"


def test_a_substitution_says_whose_output_it_is() -> None:
    word = command("x $(a b | c)").argv[1]
    assert [output.line for output in word.outputs] == ["a b", "c"]
    assert [output.piped for output in word.outputs] == [False, True]
    assert command("x y$(a)").argv[1].outputs == ()


def test_a_pipe_says_what_feeds_it() -> None:
    last = command("a 1 | b | c")
    assert [feed.line for feed in last.feeds] == ["a 1", "b"]
    assert last.piped
    assert not command("a | b; c").piped


@pytest.mark.parametrize("text", ["while a; do x; done", "until a; do x; done", "for i in $(a); do x; done"])
def test_a_loop_of_unknown_length_marks_its_commands(text: str) -> None:
    assert command(text).repeated
    assert not command("for i in 1 2; do x; done").repeated


@pytest.mark.parametrize(
    ("text", "cwd"),
    [
        ("x", None),
        ("cd /a && x", "/a"),
        ("cd /a && cd b && x", "/a/b"),
        ("cd /a && { y; x; }", "/a"),
        ("cd /a && y | x", "/a"),
        ("cd a && x", None),
        ("cd /a; x", None),
        ("cd /a || x", None),
        ("! cd /a && x", None),
        ("cd /a && y; x", None),
        ("(cd /a) && x", None),
        ("cd $(y) && x", None),
        ("cd /a && cd - && x", None),
        ("cd /a && builtin cd /b && x", None),
        ("f() { cd /b; }; cd /a && f && x", None),
    ],
)
def test_the_directory_is_known_only_where_cd_must_have_worked(text: str, cwd: str | None) -> None:
    assert command(text).cwd == cwd


@pytest.mark.parametrize(
    ("text", "stdin", "known"),
    [
        ("x <<'E'\na $b `c`\nE", "a $b `c`\n", True),
        ("x <<E\na \\$b\nE", "a $b\n", True),
        ("b=1; x <<E\na $b\nE", "a 1\n", True),
        ("x <<-'E'\n\ta\n\tE", "a\n", True),
        ("x <<< 'a b'", "a b", True),
        ("x <<E\n$(a)\nE", "$(a)\n", False),
        ("x <<-E\n\ta\n\tE", "", False),
    ],
)
def test_what_a_command_is_fed_is_kept(text: str, stdin: str, known: bool) -> None:
    word = command(text).stdin
    assert word is not None
    assert (word.text, word.constant) == (stdin, known)


def test_redirections_are_kept_with_their_targets() -> None:
    found = [
        (r.operator, r.target and r.target.text) for r in command("x <a >b >>c 2>&1 &>d >|e 3<&- 4>$(f)").redirections
    ]
    assert found == [
        ("<", "a"),
        (">", "b"),
        (">>", "c"),
        (">&", "1"),
        ("&>", "d"),
        (">|", "e"),
        ("<&-", None),
        (">", "$(f)"),
    ]


def test_redirections_of_a_group_stand_alone() -> None:
    group = command("{ a; } > /b", 0)
    assert (group.argv, [r.operator for r in group.redirections]) == ((), [">"])


def test_assignments_are_kept_with_their_command() -> None:
    assert [(name, value.text) for name, value in command("A=1 B='c d' x").assignments] == [("A", "1"), ("B", "c d")]
    assert [(name, value.text) for name, value in command("PATH=/x").assignments] == [("PATH", "/x")]
    assert command("for PATH in /x; do y; done", 0).assignments[0][0] == "PATH"
