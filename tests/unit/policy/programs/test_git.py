"""git as it is read: one list of arguments for each look, and a sentence that names the word for everything else."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.domain.looks import InRepository
from claudeops.policy.programs.git import read_git
from claudeops.policy.rules import RuleRefusedError
from claudeops.policy.shell.language import LastStatus, Literal, Text
from support.policy_cases import judged

PLAIN = "--no-color --no-ext-diff --no-textconv --ignore-submodules"
WALK = f"{PLAIN} --no-show-signature"

FORMS = (
    ("log", f"log {WALK} HEAD --"),
    ("log -3", f"log {WALK} --max-count=3 HEAD --"),
    ("log -n3 --oneline", f"log {WALK} --max-count=3 --oneline HEAD --"),
    ("log --oneline -n 3 main", f"log {WALK} --oneline --max-count=3 main --"),
    ("log --no-color --no-ext-diff --no-textconv -1", f"log {WALK} --max-count=1 HEAD --"),
    ("log --since 1.week --pretty=%h", f"log {WALK} --since=1.week --format=%h HEAD --"),
    ("log --all", f"log {WALK} --all --"),
    ("log v1..", f"log {WALK} v1..HEAD --"),
    ("log ^v1 main", f"log {WALK} ^v1 main --"),
    ("log -- src", f"log {WALK} HEAD -- src"),
    ("log -2 compose.yml", f"log {WALK} --max-count=2 HEAD -- compose.yml"),
    ("log -- /repos/app/deep/one.yml", f"log {WALK} HEAD -- deep/one.yml"),
    ("log -u -- ./one.yml", f"log {WALK} -p HEAD -- one.yml :(exclude)one.yml/*"),
    ("show --stat", f"show {WALK} --stat HEAD^{{commit}} --"),
    ("show -s v1~2", f"show {WALK} -s v1~2^{{commit}} --"),
    ("show HEAD:compose.yml", f"show {WALK} HEAD^{{commit}}:compose.yml --"),
    ("show HEAD one.yml", f"show {WALK} HEAD^{{commit}} -- one.yml :(exclude)one.yml/*"),
    ("diff --stat v1..v2", f"diff {PLAIN} --stat v1^{{commit}}..v2^{{commit}} --"),
    ("diff --stat v1 v2 --", f"diff {PLAIN} --stat v1^{{commit}} v2^{{commit}} --"),
    ("diff -U1 v1...v2 -- a.md", f"diff {PLAIN} --unified=1 v1^{{commit}}...v2^{{commit}} -- a.md :(exclude)a.md/*"),
    ("branch -av", "branch --list --no-color --no-column -a -v"),
    ("branch -l 'f*'", "branch --list --no-color --no-column f*"),
    ("branch --show-current", "branch --show-current"),
    ("branch --contains v1", "branch --list --no-color --no-column --contains=v1"),
    ("tag -n3", "tag --list --no-color --no-column -n3"),
    ("shortlog -sne", "shortlog -s -n -e HEAD --"),
    ("rev-list --count HEAD", "rev-list --count HEAD --"),
    ("rev-parse --short HEAD", "rev-parse --short HEAD"),
    ("describe --tags --always", "describe --tags --always HEAD"),
    ("merge-base --is-ancestor v1 main", "merge-base --is-ancestor v1 main"),
    ("ls-tree -r HEAD src/", "ls-tree -r HEAD src"),
    ("for-each-ref --count=3 refs/tags", "for-each-ref --count=3 refs/tags"),
    ("show-ref --heads", "show-ref --heads"),
    ("--version", "version"),
)  # fmt: skip

REFUSED = (
    ("status", "status"), ("status -s", "status"), ("diff", "working tree"), ("diff HEAD", "working tree"),
    ("diff --stat", "working tree"), ("diff --cached v1 v2", "--cached"), ("diff v1 v2", "--stat"),
    ("show", "--stat"), ("show HEAD", "--stat"), ("show -p HEAD", "name the files"), ("log -p", "name the files"),
    ("log -p -- .env", ".env"), ("log -p -- secrets.yml", "secrets.yml"), ("log -p -- src", "src"),
    ("diff --stat -U3 v1 v2", "every file"),
    ("log -p --follow -- one.yml", "--follow"), ("log -p -- '*.yml'", "*.yml"), ("show HEAD -- .env", ".env"),
    ("show HEAD:.env", ".env"), ("show HEAD:src", "src"), ("show HEAD:../one.yml", "../one.yml"),
    ("show HEAD:/one.yml", "/one.yml"), ("show -s v1^{blob}", "v1^{blob}"), ("show -s v1^{}", "v1^{}"),
    ("show :/fix", "/fix"), ("show HEAD:one.yml --stat", "one.yml"), ("show :one.yml:x", "one.yml:x"),
    ("log -- ../other", "../other"), ("log -- /etc/passwd", "/etc/passwd"), ("log -- :/", ":/"), ("log -- ''", "''"),
    ("log --output=/x", "--output"), ("log --ext-diff", "--ext-diff"), ("log --textconv", "--textconv"),
    ("log --show-signature", "--show-signature"), ("log -S x", "-S"), ("log -Gx", "-G"), ("log -L1,2:x", "-L"),
    ("log -O/x", "-O"), ("log --format=%G?", "%G"), ("log --no-index", "--no-index"), ("log -n x", "x"),
    ("log @{u}", "@{u}"), ("log HEAD@{1}", "HEAD@{1}"), ("log a..b..c", "b..c"), ("log --stdin", "--stdin"),
    ("log --author", "--author"), ("log -- -x", "-x"), ("describe --dirty", "--dirty"), ("rev-parse --all x", "--all"),
    ("branch new", "--list"), ("branch -D x", "-D"), ("branch -vd x", "-d"), ("branch --merged", "--merged"),
    ("tag new", "--list"), ("tag -d x", "-d"), ("merge-base v1", "FIRST LAST"), ("ls-tree", "REVISION"),
    ("blame one.yml", "blame"), ("grep x", "grep"), ("ls-files", "ls-files"), ("remote -v", "remote"),
    ("config -l", "config"), ("reflog", "reflog"), ("stash list", "stash"), ("worktree list", "worktree"),
    ("cat-file -p HEAD:.env", "cat-file"), ("archive HEAD", "archive"), ("ls-remote x", "ls-remote"),
    ("fetch", "fetch"), ("push --force", "push"), ("commit -m x", "commit"), ("checkout x", "checkout"),
    ("submodule status", "submodule"), ("st", "st"), ("", "no subcommand"), ("--version x", "--version"),
    ("-c core.pager=x log", "-c"), ("--exec-path=/x log", "--exec-path=/x"), ("--git-dir=/x log", "--git-dir=/x"),
    ("--work-tree /x log", "--work-tree"), ("-p log", "-p"), ("--namespace=x log", "--namespace=x"), ("-C", "-C"),
    ("--help", "--help"), ("log --help", "--help"), ("log --since='\x1b[2J'", "--since"),
)  # fmt: skip


def words(text: str) -> tuple[Literal, ...]:
    return tuple(Literal(word.strip("'")) for word in text.split(" ") if word)


@pytest.mark.parametrize(("given", "runs"), FORMS)
def test_a_look_has_one_list_of_arguments(given: str, runs: str) -> None:
    assert " ".join(read_git(words(given), "/repos/app").arguments) == runs


@pytest.mark.parametrize(("given", "named"), REFUSED)
def test_everything_else_is_refused_and_the_sentence_names_it(given: str, named: str) -> None:
    with pytest.raises(RuleRefusedError) as refused:
        read_git(words(given), "/repos/app")
    assert named in str(refused.value)


def test_what_runs_is_read_as_itself() -> None:
    """One reading: the list that git gets says to us what the words said."""
    for given, runs in FORMS:
        assert read_git(words(runs), "/repos/app") == read_git(words(given), "/repos/app")


@pytest.mark.parametrize(
    ("given", "directory"),
    [
        ("log", "/repos/app"),
        ("-C deep log", "/repos/app/deep"),
        ("-C /repos/other -C deep --no-pager log", "/repos/other/deep"),
        ("-C ../other/./x log", "/repos/other/x"),
    ],
)
def test_a_look_goes_where_git_would(given: str, directory: str) -> None:
    assert read_git(words(given), "/repos/app").directory == directory


def test_a_word_that_is_not_known_before_it_runs_is_refused() -> None:
    with pytest.raises(RuleRefusedError, match="not known before it runs"):
        read_git((Literal("log"), Text((LastStatus(),))), "/repos/app")


@pytest.mark.parametrize("tier", [1, 2, 3])
@pytest.mark.parametrize(
    "wrapped",
    ["sudo {}", "ssh web1 {}", "docker exec web {}", "GIT_PAGER=x {}", "GIT_DIR=/x {}", "env GIT_CONFIG_COUNT=0 {}",
     "sudo bash -c '{}'", "ssh web1 'timeout 5 {}'", "find /repos -maxdepth 1 -exec {} {{}} +", "echo HEAD | xargs {}",
     "cd /tmp && {}"],
)  # fmt: skip
def test_git_runs_nowhere_but_in_its_cell_and_once(wrapped: str, tier: int) -> None:
    git = "git log -n 3" if wrapped.startswith("cd") else "git -C /repos/app log -n 3"
    assert judged(wrapped.format(git), tier).kind is VerdictKind.DENY


def test_each_look_of_a_call_has_an_id_of_its_own_which_stands_in_its_place() -> None:
    verdict = judged("cd /repos/app && git log -1 | head -n 1; timeout 5 bash -c 'git -C /repos/app tag'", 1)
    assert [look.id for look in verdict.looks_run] == ["toolu_1-1", "toolu_1-2"]
    text = str((verdict.ran or {})["command"])
    assert (text.count("/look 'toolu_1-1'"), "git" in text) == (1, False)
    assert [(look.arguments[0], look.where) for look in verdict.looks_run] == [
        ("log", InRepository(directory="/repos/app", root="/repos")),
        ("tag", InRepository(directory="/repos/app", root="/repos")),
    ]
