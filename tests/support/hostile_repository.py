"""A git repository that tries to run programs wherever git's configuration and attributes let it."""

from __future__ import annotations

import subprocess
from pathlib import Path

SIGNATURE = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----"
SETTINGS = {
    "core.fsmonitor": "fsmonitor", "core.pager": "pager", "pager.log": "pager", "core.editor": "editor",
    "core.sshCommand": "ssh", "core.gitProxy": "proxy", "credential.helper": "credentials",
    "diff.external": "external", "diff.evil.textconv": "textconv", "diff.evil.command": "driver",
    "filter.evil.clean": "clean", "filter.evil.smudge": "smudge", "gpg.program": "gpg",
    "alias.log": "!alias", "alias.st": "!alias", "sequence.editor": "editor", "core.askPass": "askpass",
}  # fmt: skip
HOOKS = ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman")


class HostileRepository:
    """Below ``root``: ``repo``, the programs that it names, and ``ran``, where each of them leaves its name."""

    def __init__(self, root: Path) -> None:
        self.path = root / "repo"
        self.ran = root / "ran"
        self._programs = root / "programs"
        for directory in (self.path, self.ran, self._programs):
            directory.mkdir()
        self._git("init", "-q", ".")
        for name, value in (("user.email", "a@example.org"), ("user.name", "a"), ("commit.gpgSign", "false")):
            self._git("config", name, value)
        self._commit()
        self._arm()

    def programs_that_ran(self) -> set[str]:
        """Return their names, and forget them."""
        names = {file.name for file in self.ran.iterdir()}
        for name in names:
            (self.ran / name).unlink()
        return names

    def _commit(self) -> None:
        (self.path / ".gitattributes").write_text("*.yml diff=evil filter=evil\n", encoding="utf-8")
        (self.path / "compose.yml").write_text("one\n", encoding="utf-8")
        (self.path / ".env").write_text("PASSWORD=hunter2-in-the-repository\n", encoding="utf-8")
        self._git("add", "-A")
        self._git("commit", "-qm", "one")
        lost = self._git("rev-parse", "HEAD:compose.yml")
        for content in ("two\n", "six\n"):
            (self.path / "compose.yml").write_text(content, encoding="utf-8")
            self._git("commit", "-qam", content)
        self._git("tag", "v1")
        head, _, message = self._git("cat-file", "commit", "HEAD").partition("\n\n")
        signed = self._git("hash-object", "-t", "commit", "-w", "--stdin", given=f"{head}\n{SIGNATURE}\n\n{message}\n")
        self._git("update-ref", "HEAD", signed)
        (self.path / "compose.yml").write_text("ten\n", encoding="utf-8")  # same size: git has to look into it
        # A partial clone fetches what is missing, by a program of its choice.
        (self.path / ".git" / "objects" / lost[:2] / lost[2:]).unlink()

    def _arm(self) -> None:
        for name, program in SETTINGS.items():
            plain = program.removeprefix("!")
            self._git("config", name, program.replace(plain, str(self._program(plain))))
        hooks = self._programs / "hooks"
        hooks.mkdir()
        for name in HOOKS:
            self._program(f"hooks/{name}")
        for name, value in (
            ("core.hooksPath", str(hooks)), ("log.showSignature", "true"), ("core.repositoryformatversion", "1"),
            ("extensions.partialClone", "origin"), ("remote.origin.promisor", "true"),
            ("remote.origin.url", "ssh://nobody@127.0.0.1/x"), ("protocol.allow", "always"),
            ("protocol.ssh.allow", "always"), ("protocol.ext.allow", "always"),
        ):  # fmt: skip
            self._git("config", name, value)

    def _program(self, name: str) -> Path:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n: > '{self.ran}/{name.replace('/', '-')}'\nexit 1\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def _git(self, *arguments: str, given: str | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, check=True, capture_output=True, text=True, input=given, timeout=20,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.ran), "GIT_CONFIG_NOSYSTEM": "1"},
        )  # fmt: skip
        return done.stdout.rstrip("\n")
