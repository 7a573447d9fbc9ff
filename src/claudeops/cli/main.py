"""The entry point of the ``claudeops`` command.

Short, because it runs first: importing the rest takes a second, and a signal that asks to stop must neither be lost nor
end in a traceback then.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Final

from claudeops.cli import early_signals

_STOPPABLE: Final = frozenset({"run", "bootstrap", "rehearse"})
"""Commands that start sessions and stop them in an orderly way. A signal simply ends any other command."""

_OBJECTS: Final = 250_000
"""Made and not freed before a search for circles among them: a daemon's imports leave 210,000, and none is garbage."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status; the wheel's console script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if _STOPPABLE & set(given[:1]):
        early_signals.catch()
    else:
        early_signals.let_end()
    gc.set_threshold(_OBJECTS, 10, 25)
    from claudeops.cli.command_line import call  # noqa: PLC0415 - see above
    from claudeops.cli.reply import watch_stdout  # noqa: PLC0415 - see above

    status = call(given, write_failure=watch_stdout())
    early_signals.let_end()
    early_signals.ignore()
    sys.exit(status)
