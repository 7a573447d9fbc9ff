"""The ``claudeops`` command, from its first moment to its last.

Short because it is first: whoever is asked to stop while the rest is imported, which takes a second, has to hear it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from claudeops.cli import early_signals

_STOPPABLE: Final = frozenset({"run", "bootstrap", "rehearse"})
"""Commands that start sessions, and stop them in order. The others hold nothing: a signal ends them as it ends any."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status; the entry point of the wheel."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if _STOPPABLE & set(given[:1]):
        early_signals.hear()
    from claudeops.cli.command_line import call  # noqa: PLC0415 - see above

    status = call(given)
    early_signals.ignore()
    sys.exit(status)
