"""Repositories whose links, settings and pipes lead git elsewhere, one set-up each; all say `MARKER` where they lead.

Made below a root: ``repos/app``, ``repos/other`` beside it, and ``foreign``, which holds what no look may show.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

MARKER: Final = "hunter2-of-somewhere-else"

_SETTINGS: Final = {
    "include": "include.path",
    "mailmap": "mailmap.file",
    "attributes": "core.attributesFile",
    "order": "diff.orderFile",
    "excludes": "core.excludesFile",
}


class StrangeRepository:
    """An ordinary repository, until one of `SETUPS` is applied to it."""

    def __init__(self, root: Path) -> None:
        self.repos = root / "repos"
        self.path = self.repos / "app"
        self.other = self.repos / "other"
        self.foreign = root / "foreign"
        self.ran = root / "ran"
        for directory in (self.path, self.other, self.foreign, self.ran):
            directory.mkdir(parents=True)
        self.program = self.foreign / "program"
        self.program.write_text(f"#!/bin/sh\n: > '{self.ran}/ran'\necho {MARKER}\n", encoding="utf-8")
        self.program.chmod(0o755)
        self.secret = self.foreign / "secret"
        self.secret.write_text(f"{MARKER} {MARKER}\n{'ab' * 20} {MARKER}\n", encoding="utf-8")
        for path in (self.foreign / "repo", self.path):
            self._make(path, MARKER if path != self.path else "ordinary")
        (self.path / ".env").write_text(f"PASSWORD={MARKER}\n", encoding="utf-8")
        self.git("config", "remote.origin.url", f"https://user:{MARKER}@git.example/app")

    @property
    def own(self) -> Path:
        """The repository's ``.git``."""
        return self.path / ".git"

    def git(self, *arguments: str, at: Path | None = None, given: str | None = None) -> str:
        """Run git as the repository's owner."""
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments], cwd=at or self.path, check=True, text=True,
            capture_output=True, timeout=20, input=given, env={
                "PATH": "/usr/bin:/bin", "HOME": str(self.ran), "GIT_CONFIG_NOSYSTEM": "1",
                **{f"GIT_{who}_{what}": "a@a.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            },
        )  # fmt: skip
        return done.stdout.rstrip("\n")

    def link(self, name: str, target: Path) -> None:
        """Put a link at a place below ``.git``."""
        place = self.own / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def pipe(self, name: str) -> None:
        """Put a pipe, which nothing ever writes to, at a place below ``.git``."""
        place = self.own / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        os.mkfifo(place)

    def blob(self) -> str:
        """Return the hash of a secret file's content that is in the repository, and in no commit that is reachable."""
        return self.git("hash-object", "-w", ".env")

    def _make(self, path: Path, text: str) -> None:
        path.mkdir(exist_ok=True)
        self.git("init", "-q", "-b", "main", ".", at=path)
        stream = "".join(
            f"commit refs/heads/main\ncommitter a <a@a.example> {number} +0000\ndata <<E\n{text} {number}\nE\n"
            f"M 100644 inline compose.yml\ndata <<E\n{text} {number}\nE\n"
            for number in range(1, 4)
        )
        self.git("fast-import", "--quiet", at=path, given=f"{stream}reset refs/tags/v1\nfrom refs/heads/main\n")
        self.git("reset", "-q", "--hard", at=path)


def _attributes(repository: StrangeRepository) -> None:
    """Let every driver, filter and hook of a repository run a program."""
    program = str(repository.program)
    for name in (
        "core.fsmonitor", "core.hooksPath", "core.pager", "pager.log", "core.editor", "core.sshCommand", "core.askPass",
        "core.alternateRefsCommand", "diff.external", "diff.evil.textconv", "diff.evil.command", "filter.evil.clean",
        "filter.evil.smudge", "filter.evil.process", "merge.evil.driver", "gpg.program", "gpg.ssh.program",
    ):  # fmt: skip
        repository.git("config", name, program)
    for name, value in (
        ("log.showSignature", "true"), ("log.diffMerges", "remerge"), ("submodule.recurse", "true"),
        ("diff.submodule", "diff"), ("status.submoduleSummary", "true"), ("alias.log", f"!{program}"),
        ("blame.ignoreRevsFile", str(repository.secret)), ("log.mailmap", "true"), ("core.worktree", "/etc"),
    ):  # fmt: skip
        repository.git("config", name, value)
    (repository.own / "info" / "attributes").write_text("* diff=evil filter=evil merge=evil\n", encoding="utf-8")
    (repository.own / "hooks").mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (repository.own / "hooks" / hook).symlink_to(repository.program)


def _submodule(repository: StrangeRepository) -> None:
    """Commit a submodule whose own settings run programs, and whose packed references are a link."""
    repository.git("submodule", "add", "-q", str(repository.foreign / "repo"), "sub")
    repository.git("commit", "-qm", "submodule")
    inner = repository.own / "modules" / "sub"
    with (inner / "config").open("a", encoding="utf-8") as config:
        config.write(f'[core]\n\tfsmonitor = {repository.program}\n[diff "evil"]\n\ttextconv = {repository.program}\n')
    (inner / "packed-refs").unlink(missing_ok=True)
    (inner / "packed-refs").symlink_to(repository.secret)
    repository.git("config", "diff.submodule", "diff")


def _promised(repository: StrangeRepository) -> None:
    """Miss an object that a program of the repository's choice would fetch."""
    lost = repository.git("rev-parse", "HEAD~1:compose.yml")
    (repository.own / "objects" / lost[:2] / lost[2:]).unlink()
    for name, value in (
        ("core.repositoryformatversion", "1"), ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"), ("remote.origin.url", "ssh://nobody@127.0.0.1/x"),
        ("core.sshCommand", str(repository.program)), ("protocol.allow", "always"),
    ):  # fmt: skip
        repository.git("config", name, value)


def _alternates(repository: StrangeRepository, path: str) -> None:
    (repository.own / "objects" / "info" / "alternates").write_text(f"{path}\n", encoding="utf-8")
    _foreign_head(repository)


def _foreign_head(repository: StrangeRepository) -> None:
    """Name a commit of the foreign repository, as a branch and as what is checked out."""
    head = repository.git("rev-parse", "HEAD", at=repository.foreign / "repo")
    for name in ("main", "stolen"):
        (repository.own / "refs" / "heads" / name).write_text(f"{head}\n", encoding="utf-8")


def _other_objects(repository: StrangeRepository) -> None:
    objects = repository.own / "objects"
    objects.rename(repository.own / "old")
    objects.symlink_to(repository.foreign / "repo" / ".git" / "objects")
    _foreign_head(repository)


def _other_fan_outs(repository: StrangeRepository) -> None:
    foreign = repository.foreign / "repo" / ".git" / "objects"
    for directory in foreign.glob("??"):
        place = repository.own / "objects" / directory.name
        if not place.exists():
            place.symlink_to(directory)
    _foreign_head(repository)


def _git_file(repository: StrangeRepository, target: str) -> None:
    repository.own.rename(repository.path / "old")
    (repository.path / ".git").write_text(f"gitdir: {target}\n", encoding="utf-8")


def _git_link(repository: StrangeRepository) -> None:
    repository.own.rename(repository.path / "old")
    repository.own.symlink_to(repository.foreign / "repo" / ".git")


def _common_elsewhere(repository: StrangeRepository) -> None:
    """Be a linked working tree whose common directory lies elsewhere."""
    inside = repository.path / "old" / "worktrees" / "app"
    _git_file(repository, str(inside))
    inside.mkdir(parents=True)
    (inside / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (inside / "commondir").write_text(f"{repository.foreign}/repo/.git\n", encoding="utf-8")


def _detached(repository: StrangeRepository, name: str) -> None:
    repository.git("checkout", "-q", "--detach")
    (repository.own / name).parent.mkdir(exist_ok=True)
    repository.link(name, repository.secret)


def _setting(name: str) -> Callable[[StrangeRepository], None]:
    def set_up(repository: StrangeRepository) -> None:
        repository.git("config", name, str(repository.secret))

    return set_up


def _linked(name: str) -> Callable[[StrangeRepository], None]:
    return lambda repository: repository.link(name, repository.secret)


def _env_linked(repository: StrangeRepository) -> None:
    repository.link("info/grafts", repository.path / ".env")
    repository.link("packed-refs", repository.path / ".env")


SETUPS: Final[dict[str, Callable[[StrangeRepository], None]]] = {
    "nothing strange": lambda _repository: None,
    "drivers, filters, hooks": _attributes,
    "a submodule": _submodule,
    "a promised object": _promised,
    **{f"setting {name}": _setting(setting) for name, setting in _SETTINGS.items()},
    **{
        f"{name} is a link": _linked(name)
        for name in (
            "HEAD", "config", "packed-refs", "shallow", "commondir", "info/grafts", "info/attributes", "info/exclude",
            "objects/info/alternates", "objects/info/commit-graph", "objects/info/commit-graphs/commit-graph-chain",
            "objects/pack/multi-pack-index", "refs/heads/main", "refs/heads/new", "refs/tags/v1", "logs/HEAD",
            "worktrees/x/gitdir", "worktrees/x/HEAD", "FETCH_HEAD", "MERGE_HEAD", "index", "config.worktree",
        )
    },
    "a bisection that is a link": lambda repository: _detached(repository, "BISECT_START"),
    "a rebase that is a link": lambda repository: _detached(repository, "rebase-merge/head-name"),
    "links to the secret file of the repository itself": _env_linked,
    "alternates": lambda repository: _alternates(repository, f"{repository.foreign}/repo/.git/objects"),
    "relative alternates": lambda repository: _alternates(repository, "../../../../foreign/repo/.git/objects"),
    "quoted alternates": lambda repository: _alternates(repository, f'"{repository.foreign}/repo/.git/objects"'),
    "objects that are a link": _other_objects,
    "fan-outs that are links": _other_fan_outs,
    "a .git file": lambda repository: _git_file(repository, f"{repository.foreign}/repo/.git"),
    "a relative .git file": lambda repository: _git_file(repository, "../../foreign/repo/.git"),
    ".git is a link": _git_link,
    "a common directory elsewhere": _common_elsewhere,
}  # fmt: skip

PIPES: Final = ("HEAD", "config", "packed-refs", "shallow", "refs/heads/new", "objects/info/alternates")
