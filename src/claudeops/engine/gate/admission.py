"""Admission of CLI binaries: a binary may be used once it has passed the self-test of the gate, known by its digest.

A CLI updates itself while the daemon runs, so the question is asked again before every session.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec

from claudeops.clock import Clock
from claudeops.engine.gate.cli_version import check_version
from claudeops.engine.gate.self_test import SelfTestResult
from claudeops.errors import ConfigurationError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads

T = TypeVar("T")
Trial = Callable[[Path], Awaitable[SelfTestResult]]

FILE: Final = "cli-self-tests.json"
"""In the state directory, which no session can see."""

_KEPT: Final = 32  # newest entries of the file
_LOOK_SECONDS: Final = 10.0
_READ_SECONDS: Final = 120.0  # to read 400 MB, or to run the CLI for its version
_MOST_LOOKS: Final = 5  # at one file that is changed each time
_SETTLED_SECONDS: Final = 2.0  # since the last change: two within one step of the kernel's clock look like one
_FILES: Final = Threads(most=4)


class FileIdentity(msgspec.Struct, frozen=True):
    """A file as the kernel knows it. A user who replaces the file cannot set back the last number."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A binary that has passed the self-test."""

    digest: str  # SHA-256 of the file, in hex
    version: str  # as the binary reports it
    tester: str  # version of claudeops; another version may drive the CLI differently
    at: str  # ISO 8601, UTC
    identity: FileIdentity | None = None  # None: the file had just been changed, or another version has tested it


class CliAdmission(msgspec.Struct, kw_only=True):
    """Admits binaries; remembers them across restarts in ``record``. Of a script, only the script itself is hashed."""

    record: Path
    tester: str  # our own version
    test: Trial | None  # None: the operator has switched the self-test off
    clock: Clock
    log: Logger
    versions: dict[Path, str] = msgspec.field(
        default_factory=dict
    )  # of the binaries that were looked at, as they report them
    _admitted: dict[Path, FileIdentity] = msgspec.field(default_factory=dict)  # binaries that need no further look
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)  # so that two sessions at once cause one test

    async def refusal(self, binary: Path) -> str | None:
        """Return why ``binary`` may not be used, in one sentence, or ``None``.

        Costs one stat if the file was admitted before, also by a daemon before this one; otherwise the time to read
        it, and two seconds more if no passed test is remembered. A failed test is not remembered: the machine may have
        been too slow for it.
        """
        if self.test is None:
            return None
        async with self._turn:
            try:
                found = await _looked(_identify, binary)
                if self._admitted.get(binary) == found:
                    return None
                return await self._looked_at(binary, found, self.test)
            except OSError as error:
                return f"The claude CLI {binary} could not be tested ({error.strerror}): make it readable."
            except ConfigurationError as error:
                return str(error)

    async def _looked_at(self, binary: Path, found: FileIdentity, test: Trial) -> str | None:
        """Look at a binary until it is the same afterwards, a few times.

        A package manager that gives the file another link, or the mode that it had, changes it too, in no time.
        """
        refusal: str | None = None
        for _ in range(_MOST_LOOKS):
            refusal = await self._look(binary, found, test)
            again = await _looked(_identify, binary)
            if refusal is None or again == found:
                break
            found = again
        return refusal

    async def _look(self, binary: Path, found: FileIdentity, test: Trial) -> str | None:
        known = await _looked(_read, self.record)
        for entry in known.passed:
            if (entry.identity, entry.tester) == (found, self.tester):
                self._admitted[binary], self.versions[binary] = found, entry.version
                return None
        # Of a file that is read so soon after a change, what is read may not be what its times stand for.
        settled = self.clock.now().timestamp() - found.changed_ns / 1e9 > _SETTLED_SECONDS
        digest, version = await _looked(_digest_and_version, binary, _READ_SECONDS)
        tested_before = any((entry.digest, entry.tester) == (digest, self.tester) for entry in known.passed)
        seconds = 0.0
        if not tested_before:
            started = self.clock.monotonic()
            tested = await test(binary)
            if not tested.passed:
                return self._refused(binary, version, tested)
            seconds = round(self.clock.monotonic() - started, 1)
        # Before the test is remembered: another file may have been tested than the one that was read.
        if await _looked(_identify, binary) != found:
            return f"The claude CLI {binary} was replaced while it was being tested: it will be tested again."
        if not tested_before:
            self.log.info(LogEvent.CLI_SELF_TEST_PASSED, path=str(binary), version=version, seconds=seconds)
        await self._remember(known, digest, version, found if settled else None)
        self._admitted[binary], self.versions[binary] = found, version
        return None

    def _refused(self, binary: Path, version: str, tested: SelfTestResult) -> str:
        faults = [fault.value for fault in tested.faults]
        self.log.critical(
            LogEvent.CLI_SELF_TEST_FAILED, path=str(binary), version=version, faults=faults, detail=tested.detail
        )
        return (
            f"The gate does not hold with the claude CLI {binary} ({version}): {'; '.join(faults)}; "
            "name another CLI in CLAUDEOPS_CLAUDE_BIN, or unset it to use the bundled one."
        )

    async def _remember(self, known: _Record, digest: str, version: str, identity: FileIdentity | None) -> None:
        at = self.clock.now().isoformat()
        entry = Passed(digest=digest, version=version, tester=self.tester, at=at, identity=identity)
        others = (each for each in known.passed if (each.digest, each.tester) != (digest, self.tester))
        try:
            record = _Record(passed=(*others, entry)[-_KEPT:])
            await _looked(lambda path: _write(path, record), self.record)
        except OSError as error:
            # This only costs the next start some seconds.
            self.log.warning(LogEvent.CLI_SELF_TEST_FORGOTTEN, path=str(self.record), error=str(error))


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    passed: tuple[Passed, ...] = ()


async def _looked(look: Callable[[Path], T], path: Path, seconds: float = _LOOK_SECONDS) -> T:
    """Return the result of a look at a file, made off the event loop; raises `OSError`."""
    return await _FILES.run(lambda: look(path), seconds=seconds, what=f"a look at {path}")


def _identify(binary: Path) -> FileIdentity:
    found = binary.stat()
    return FileIdentity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _digest(binary: Path) -> str:
    with binary.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_and_version(binary: Path) -> tuple[str, str]:
    """Return both at once: the file has 400 MB, and its process takes a quarter of a second."""
    with ThreadPoolExecutor(1) as beside:
        version = beside.submit(check_version, binary)
        return _digest(binary), version.result()


_RECORD: Final = msgspec.json.Decoder(_Record)


def _read(record: Path) -> _Record:
    try:
        return _RECORD.decode(record.read_bytes())
    except (OSError, msgspec.DecodeError):
        return _Record()  # nothing is remembered, so every binary is tested again


def _write(record: Path, content: _Record) -> None:
    beside = record.with_suffix(".json.new")
    beside.write_bytes(msgspec.json.encode(content))
    os.replace(beside, record)  # noqa: PTH105 - os.replace says that it is atomic
