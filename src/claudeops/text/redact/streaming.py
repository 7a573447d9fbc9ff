"""Redaction of a stream: known secrets are found although they come in pieces; what holds none is passed on at once.

Only what may be the beginning of a secret is held back until more has come. So the parts that are returned are together
what `StreamRedactor` makes of the whole in one piece, wherever it was cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from claudeops.text.redact import MASK, compiled, expressions, masked_spans, search_values
from claudeops.text.redact.patterns import beginning

_MOST_HELD: Final = 16 * 1024
"""Bytes; no secret of ours is this long in any form, but for blanks without end between its characters."""


class KnownSecrets:
    """Finds some secrets in bytes. Compiled once, for any number of streams and threads; secrets are of ASCII."""

    __slots__ = ("_begun", "_known")

    def __init__(self, secrets: Iterable[str]) -> None:
        wanted = search_values(secrets)
        self._known = [compiled(expression, longest=True) for expression in expressions(wanted)]
        self._begun = [compiled(expression) for expression in expressions(wanted, form=beginning)]

    def masked(self, whole: bytes) -> bytes:
        """Return bytes without the secrets."""
        return masked_spans(whole, self._spans(whole))

    def divided(self, text: bytes) -> tuple[bytes, bytes]:
        """Return what can be passed on of a text that goes on, masked, and what is to be held back."""
        cut = self._begins(text)
        spans = self._spans(text)
        for start, end in sorted(spans, reverse=True):
            if start < cut <= end:  # what is held back may belong to it, and both are one
                cut = start
        return masked_spans(text[:cut], [span for span in spans if span[1] <= cut]), text[cut:]

    def _begins(self, text: bytes) -> int:
        """Return from where on a text may be the beginning of a secret."""
        first = max(0, len(text) - _MOST_HELD)
        found = (begun.search(text, first) for begun in self._begun)
        return min((match.span()[0] for match in found if match is not None), default=len(text))

    def _spans(self, text: bytes) -> list[tuple[int, int]]:
        """Return where secrets are: from each place the longest, overlapping ones too."""
        spans = []
        for known in self._known:
            found = known.search(text)
            while found is not None:
                spans.append(found.span())
                found = known.search(text, found.span()[0] + 1)
        return spans


class StreamRedactor:
    """Takes known secrets out of one stream of bytes."""

    def __init__(self, secrets: KnownSecrets) -> None:
        self._secrets = secrets
        self._held = b""

    def feed(self, more: bytes) -> bytes:
        """Take the next bytes, and return what can be passed on."""
        passed, self._held = self._secrets.divided(self._held + more)
        return passed

    def end(self) -> bytes:
        """Return what is left at the end."""
        held, self._held = self._held, b""
        return self._secrets.masked(held)


__all__ = ["MASK", "KnownSecrets", "StreamRedactor"]
