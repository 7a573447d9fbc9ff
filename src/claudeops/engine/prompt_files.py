"""The tiers' prompt files, read anew for every session: an edit counts from the next one on.

A file that cannot be used leaves the session the last good text, and people an event: once, until the file changes
again. The events wait here for the next session that starts, which takes them to the database with its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from claudeops.domain.events import EventLevel, NewEvent, of_node
from claudeops.errors import ConfigurationError
from claudeops.logs import LogEvent, Logger
from claudeops.tasks import Threads

READ_SECONDS: Final = 10.0
_READERS: Final = Threads(most=4)


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A tier's fixed task text, as it is now."""

    text: str
    path: str  # of the file that it was read from; "" for a text that no file holds
    digest: str  # SHA-256 of the text, in hexadecimal digits

    @classmethod
    def of(cls, text: str, path: str = "") -> Template:
        """Return a text as a template."""
        return cls(text=text, path=path, digest=hashlib.sha256(text.encode()).hexdigest())


class Notices:
    """Conditions that people are told of once, and the events about them that no session has taken along yet."""

    def __init__(self, node: str = "") -> None:
        """Name the machine on which they are, if it has a name."""
        self._node = node
        self._states: dict[str, str] = {}  # of each condition that lasts, by its fingerprint
        self._events: dict[str, NewEvent] = {}

    def tell(self, fingerprint: str, message: str) -> bool:
        """Note what is wrong; return whether that is news, and then an event waits."""
        if self._states.get(fingerprint) == message:
            return False
        self._states[fingerprint] = message
        event = NewEvent(level=EventLevel.WARNING, message=message, fingerprint=fingerprint)
        self._events[fingerprint] = of_node(event, self._node)
        return True

    def over(self, fingerprint: str) -> bool:
        """Note that nothing is wrong; return whether something was. An event that waits stays: it did happen."""
        return self._states.pop(fingerprint, None) is not None

    def take(self) -> tuple[NewEvent, ...]:
        """Return the events that wait, and forget them."""
        events = tuple(self._events.values())
        self._events.clear()
        return events


class PromptFiles:
    """The prompts of all tiers."""

    def __init__(
        self,
        first: Mapping[int, Template],
        *,
        read: Callable[[int], str] | None = None,
        log: Logger,
        node: str = "",
    ) -> None:
        """Begin with the prompts of the daemon's start.

        ``read`` returns the text of a tier's file as it is now, or raises `ConfigurationError` or `OSError` with the
        sentence that says why the file cannot be used. It accesses the disk. ``None``: the prompts are in no files.
        """
        self.notices = Notices(node)
        self._good = dict(first)
        self._digests = _digests_of(self._good)
        self._read = read
        self._log = log

    def digests(self) -> Mapping[int, str]:
        """Return the digest of each tier's prompt, as last read: the same object, until one has changed."""
        return self._digests

    async def template(self, tier: int) -> Template:
        """Return a tier's prompt as its file has it now; the last good one if that cannot be used."""
        good = self._good[tier]
        if self._read is None:
            return good
        try:
            text = await _READERS.run(
                partial(self._read, tier), seconds=READ_SECONDS, what=f"reading the prompt {good.path}"
            )
        except (ConfigurationError, OSError) as error:
            self._broken(tier, error)
            return good
        changed = text != good.text
        if self.notices.over(_condition(tier)) or changed:
            self._log.info(LogEvent.PROMPT_FILE_READ, tier=tier, path=good.path, changed=changed)
        if changed:
            self._good[tier] = Template.of(text, good.path)
            self._digests = _digests_of(self._good)
        return self._good[tier]

    def _broken(self, tier: int, error: ConfigurationError | OSError) -> None:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"The prompt of tier {tier} cannot be used, and its last good text serves: {said.rstrip('.')}."
        if self.notices.tell(_condition(tier), message):
            self._log.warning(LogEvent.PROMPT_FILE_BROKEN, tier=tier, path=self._good[tier].path, error=said)


def _digests_of(templates: Mapping[int, Template]) -> Mapping[int, str]:
    return {tier: template.digest for tier, template in templates.items()}


def _condition(tier: int) -> str:
    return f"prompt_file:{tier}"
