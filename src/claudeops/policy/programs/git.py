"""git: reads a command that looks at a repository into the one list of arguments with which the daemon runs it.

A repository's configuration, links and submodules make git run programs and print foreign files. What is read here
therefore never runs in a session: the daemon runs it in a cell of its own that holds little more than the objects and
references of the one repository (`claudeops.engine.cell.git`). The forms left here need nothing else: no working tree,
no index, no configuration and no reflog.

By name they keep out what is secret: content is printed only of files that are named, and whose kind holds no secret.
So that no hash stands for such content, revisions whose object would be printed are peeled to a commit.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from claudeops.policy.paths import is_plain_file
from claudeops.policy.rules import RuleRefusedError, option_table, read_arguments
from claudeops.policy.shell.language import Literal, Word, shown
from claudeops.text import regex

_GLOBAL: Final = frozenset({"--no-pager", "-P", "--no-optional-locks", "--no-replace-objects"})
"""Options in front of the subcommand that change nothing in a cell."""

_LISTED: Final = "--list|-l --no-color --no-column"
_SHOW_CURRENT: Final = "--show-current"
_PLAIN: Final = "--no-color --no-ext-diff --no-textconv --ignore-submodules"
_WALK: Final = (
    "--max-count|-n|-NUM=int --skip=int --since|--after=text --until|--before=text --author=text --grep=text"
    " -i|--regexp-ignore-case --all --branches --tags --remotes --merges --no-merges --first-parent --reverse"
)
_SUMMARY: Final = "--stat --shortstat --numstat --name-only --name-status"
_LOG: Final = (
    f"{_WALK} {_SUMMARY} -s|--no-patch -p|--patch|-u --oneline --graph --follow --decorate=?word --no-decorate"
    " --abbrev-commit --abbrev=?int --date=text --format|--pretty=?format -z"
)
_REFS: Final = "--merged=rev --no-merged=rev --contains=rev --points-at=rev --sort=text --format=format"

_REVISION: Final = regex.Pattern(r"(?:@|[A-Za-z0-9_][A-Za-z0-9_./+@-]*)(?:[~^]\d{0,9})*(?:\^\{commit\})?")
_PEELED: Final = "^{commit}"
_PATTERN: Final = regex.Pattern(r"[A-Za-z0-9_*?][A-Za-z0-9_./+@*?-]*")
_NOT_BELOW: Final = ":(exclude)"  # gitglossary(7), "pathspec"; written here alone
_NUMBER: Final = regex.Pattern(r"\d{1,9}")
_UNPRINTABLE: Final = regex.Pattern(r"[\x00-\x08\x0b-\x1f\x7f]")

_SHOWN_WHOLE: Final = regex.Pattern(r"%G|%\(\*?(?:raw|signature)[^)]*\)")

_INSTEAD: Final = {
    "status": "the working tree is not looked at, only what is committed: git log, git diff --stat FIRST..LAST",
    "blame": "use git log -p -- FILE",
    "grep": "use git log --grep for messages, or grep the files",
    "ls-files": "use git ls-tree -r --name-only HEAD",
    "remote": "addresses could hold credentials, and the configuration is not read",
    "config": "it could hold credentials",
    "reflog": "use git log",
    "stash": "what is stashed is not shown: use git log",
}


class GitLook(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a repository, as git gets it."""

    arguments: tuple[str, ...]  # the subcommand, options in one spelling, revisions, ``--``, files
    directory: str  # where git runs: absolute, in the repository, perhaps below its top


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    """What was given to a subcommand, options in the spelling in which they are written."""

    options: tuple[str, ...]
    names: frozenset[str]  # of the options
    words: tuple[str, ...]
    files: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """Whether one of these options was given."""
        return not self.names.isdisjoint(names)


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """One subcommand."""

    options: str  # as in a rule; flags that `fixed` has are left out
    rest: Callable[[_Given], tuple[str, ...]]  # returns what follows the options
    fixed: str = ""  # options that are always written


def read_git(words: Sequence[Word], cwd: str) -> GitLook:
    """Read the words behind ``git``; ``cwd`` is the directory of the call. Raises `RuleRefusedError`."""
    directory, verb, rest = _before_subcommand([_known(word) for word in words], cwd)
    if verb in {"version", "--version"} and not rest:
        return GitLook(arguments=("version",), directory=directory)
    form = _FORMS.get(verb)
    if form is None:
        instead = _INSTEAD.get(verb, f"known are {', '.join(_FORMS)}")
        raise RuleRefusedError(f"{verb[:40] or 'no subcommand'} is not allowed: {instead}")
    try:
        given = _read(form, rest, directory)
        if given.options == (_SHOW_CURRENT,) and not (given.words or given.files):
            return GitLook(arguments=(verb, _SHOW_CURRENT), directory=directory)  # it goes with no other option
        following = form.rest(given)
    except RuleRefusedError as error:
        raise RuleRefusedError(f"{verb}: {error}") from None
    fixed = dict.fromkeys(option.names[0] for option in option_table(form.fixed).values())
    return GitLook(arguments=(verb, *fixed, *given.options, *following), directory=directory)


def _known(word: Word) -> str:
    if isinstance(word, Literal):
        return word.text
    raise RuleRefusedError(f"{shown(word)} is not known before it runs: write it out, in quotes")


def _before_subcommand(words: list[str], cwd: str) -> tuple[str, str, list[str]]:
    """Return the directory that git goes to, the subcommand, and the words behind it."""
    directory, rest = cwd, words
    while rest and rest[0].startswith("-") and rest[0] != "--version":
        if rest[0] == "-C" and len(rest) > 1:
            directory, rest = posixpath.join(directory, rest[1]), rest[2:]
        elif rest[0] in _GLOBAL:
            rest = rest[1:]
        else:
            raise RuleRefusedError(f"{rest[0]} is not allowed: name the repository with git -C DIRECTORY")
    if not directory.startswith("/"):
        raise RuleRefusedError("it is not known where it would run: write git -C /DIRECTORY")
    return posixpath.normpath(directory), rest[0] if rest else "", rest[1:]


def _read(form: _Form, words: list[str], directory: str) -> _Given:
    """Separate options, words and files."""
    at = words.index("--") if "--" in words else len(words)
    read = read_arguments(tuple(map(Literal, words[:at])), f"{form.options} {form.fixed}")
    fixed = set(option_table(form.fixed).values())
    options: list[str] = []
    for option, value in read.options:
        _check(option.names[0], option.kind or "", value or "")
        options += option.written(value) if option not in fixed else ()
    plain, files = [shown(word) for word in read.positionals], words[at + 1 :]
    if not files:  # a file without ``--`` in front of it
        first = next((at for at, word in enumerate(plain) if ":" not in word and is_plain_file(word)), len(plain))
        plain, files = plain[:first], plain[first:]
    return _Given(
        options=tuple(options),
        names=frozenset(option.names[0] for option, _ in read.options),
        words=tuple(plain),
        files=tuple(_file(file, directory) for file in files if not file.startswith(_NOT_BELOW)),
    )


def _check(name: str, kind: str, value: str) -> None:
    if kind == "rev":
        _revision(value)
    if kind == "int" and value and not _NUMBER.fullmatch(value):
        raise RuleRefusedError(f"{name} {value}: write a plain number")
    if kind == "format" and (found := _SHOWN_WHOLE.search(value)):
        raise RuleRefusedError(
            f"{name}: leave {found[0]} out: signatures are not checked here, and objects not printed"
        )
    if _UNPRINTABLE.search(value):
        raise RuleRefusedError(f"{name}: write its value without control characters")


# --- words ------------------------------------------------------------------------------------------------


def _file(word: str, directory: str) -> str:
    """Return a path relative to the directory, as git takes it."""
    path = posixpath.relpath(word, directory) if word.startswith("/") else posixpath.normpath(word)
    if not word or path.startswith(("..", ":", "-")) or _UNPRINTABLE.search(path):
        raise RuleRefusedError(f"{word!r} is not a plain path in the repository")
    return path


def _revision(word: str) -> str:
    if not _REVISION.fullmatch(word) or ".." in word:
        raise RuleRefusedError(
            f"{word!r} is not a plain revision: write a name or a hash, perhaps with ~N, or FIRST..LAST"
        )
    return word


def _commit(word: str) -> str:
    return f"{_revision(word).removesuffix(_PEELED)}{_PEELED}"


def _range(word: str, read: Callable[[str], str] = _revision) -> str:
    """Return a revision, ``^REVISION``, ``FIRST..LAST`` or ``FIRST...LAST``; a side left out is HEAD."""
    first, dots, last = word.partition("...") if "..." in word else word.partition("..")
    if dots:
        return f"{read(first or 'HEAD')}{dots}{read(last or 'HEAD')}"
    return f"^{read(word[1:])}" if word.startswith("^") else read(word)


def _patterns(given: _Given) -> tuple[str, ...]:
    for word in (*given.words, *given.files):
        if not _PATTERN.fullmatch(word):
            raise RuleRefusedError(f"{word!r} is not a plain name or pattern")
    return (*given.words, *given.files)


def _listed(given: _Given) -> tuple[str, ...]:
    """Return patterns; without ``--list`` git would make what they name."""
    if (given.words or given.files) and not given.has("--list"):
        raise RuleRefusedError("it is only listed here: write --list PATTERN")
    return _patterns(given)


def _walked(given: _Given) -> tuple[str, ...]:
    """Return revisions and files, with HEAD where no revision is given."""
    everything = given.has("--all", "--branches", "--tags", "--remotes")
    revisions = tuple(map(_range, given.words)) or (() if everything else ("HEAD",))
    files = _files(given, shown=given.has("-p"), instead="name the files: git log -p -- FILE")
    return (*revisions, "--", *files)


def _shown(given: _Given) -> tuple[str, ...]:
    if len(given.words) == 1 and ":" in given.words[0]:
        revision, _, path = given.words[0].partition(":")
        if given.options or given.files or not is_plain_file(path) or _file(path, "/") != path:
            raise RuleRefusedError(
                f"{path}: name a single file, of a kind that holds no secret: git show REVISION:FILE"
            )
        return (f"{_commit(revision or 'HEAD')}:{path}", "--")
    instead = "add --stat or -s, or name the files: git show REVISION -- FILE, git show REVISION:FILE"
    files = _files(given, shown=given.has("-p") or not given.has("-s", *_SUMMARY.split()), instead=instead)
    return (*map(_commit, given.words or ("HEAD",)), "--", *files)


def _compared(given: _Given) -> tuple[str, ...]:
    """Return two commits: with fewer git would compare the working tree."""
    if len(given.words) == 1 and ".." in given.words[0]:
        commits: tuple[str, ...] = (_range(given.words[0], _commit),)
    elif len(given.words) == 2:  # noqa: PLR2004 - they are compared
        commits = tuple(map(_commit, given.words))
    else:
        raise RuleRefusedError("write git diff --stat FIRST..LAST: the working tree is not compared")
    instead = "add --stat, or name the files: git diff FIRST..LAST -- FILE"
    shown = given.has("-p", "--unified") or not given.has(*_SUMMARY.split())  # a context asks for the patch
    return (*commits, "--", *_files(given, shown=shown, instead=instead))


def _files(given: _Given, *, shown: bool, instead: str) -> tuple[str, ...]:
    """Return the files; content is printed only of those that are named and hold no secret, under that name alone."""
    if not shown:
        return given.files
    if not given.files:
        raise RuleRefusedError(f"it would print every file: {instead}")
    for file in given.files:
        if not is_plain_file(file):
            raise RuleRefusedError(f"{file}: name single files, of a kind that holds no secret")
    if given.has("--follow"):
        raise RuleRefusedError("--follow would print files under other names: leave it out, or leave -p out")
    # A directory may have the name of a file; what lies in it may be a secret.
    return (*given.files, *(f"{_NOT_BELOW}{file}/*" for file in given.files))


def _parsed(given: _Given) -> tuple[str, ...]:
    return tuple(map(_range, (*given.words, *given.files)))


def _described(given: _Given) -> tuple[str, ...]:
    return tuple(map(_revision, (*given.words, *given.files))) or ("HEAD",)


def _two(given: _Given) -> tuple[str, ...]:
    if len(given.words) != 2:  # noqa: PLR2004 - it is the base of two
        raise RuleRefusedError("write git merge-base FIRST LAST")
    return tuple(map(_revision, given.words))


def _in_tree(given: _Given) -> tuple[str, ...]:
    """Return a revision and paths, which are taken literally."""
    if not given.words:
        raise RuleRefusedError("write git ls-tree REVISION")
    first, *paths = given.words
    return (_revision(first), *(_file(path, "/") for path in paths), *given.files)


_FORMS: Final[Mapping[str, _Form]] = {
    "log": _Form(options=_LOG, fixed=f"{_PLAIN} --no-show-signature", rest=_walked),
    "show": _Form(options=_LOG, fixed=f"{_PLAIN} --no-show-signature", rest=_shown),
    "diff": _Form(
        options=f"{_SUMMARY} -p|--patch|-u --unified|-U=int --no-renames -w|--ignore-all-space -z",
        fixed=_PLAIN,
        rest=_compared,
    ),
    "shortlog": _Form(options=f"{_WALK} -s|--summary -n|--numbered -e|--email", rest=_walked),
    "rev-list": _Form(options=f"{_WALK} --count", rest=_walked),
    "rev-parse": _Form(
        options="--short=?int --abbrev-ref --verify -q|--quiet --symbolic-full-name --show-toplevel --git-dir"
        " --is-inside-work-tree",
        rest=_parsed,
    ),
    "describe": _Form(
        options="--tags --always --all --long --abbrev=int --exact-match --contains --first-parent", rest=_described
    ),
    "branch": _Form(
        options=f"-a|--all -r|--remotes -v|--verbose --show-current {_REFS}",
        fixed=_LISTED,
        rest=_listed,
    ),
    "tag": _Form(options=f"-n=?int {_REFS}", fixed=_LISTED, rest=_listed),
    "for-each-ref": _Form(options=f"--count=int {_REFS}", rest=_patterns),
    "show-ref": _Form(options="--heads --tags -s|--hash -d|--dereference", rest=_patterns),
    "merge-base": _Form(options="-a|--all --is-ancestor", rest=_two),
    "ls-tree": _Form(options="-r -t -d -l|--long --name-only|--name-status -z", rest=_in_tree),
}
