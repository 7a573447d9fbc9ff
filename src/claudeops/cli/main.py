"""The entry point of the ``claudeops`` command.

Short, because it runs first: importing the rest takes a second, and a signal that asks to stop must neither be lost nor
end in a traceback then.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Final

from claudeops.cli import early_signals

_STOPPABLE: Final = frozenset({"run", "bootstrap", "rehearse"})
"""Commands that start sessions and stop them in an orderly way. A signal simply ends any other command."""

_OBJECTS: Final = 250_000
"""Made and not freed before a search for circles among them: a daemon's imports leave 210,000, and none is garbage."""

_DEFERRED: Final = {"asyncio": ("iscoroutine",), "importlib.metadata": ()}
"""Modules that SQLAlchemy imports for a use which most commands never make, with the functions that it names then.

They and what they import take a fifth of the time that it takes.
"""


class DeferredModule(ModuleType):
    """Stands for a module until anything of it is used, and imports it then."""

    def __init__(self, name: str, functions: Sequence[str] = ()) -> None:
        """Stand for a module whose ``functions`` can be named without an import of it."""
        super().__init__(name)
        for function in functions:
            setattr(self, function, partial(self._call, function))

    def stand_in(self) -> None:
        """Take the module's place, unless it is imported already."""
        if self.__name__ not in sys.modules:
            sys.modules[self.__name__] = self
            package, _, name = self.__name__.rpartition(".")
            if package:
                setattr(sys.modules[package], name, self)

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)

    def _call(self, function: str, *arguments: object) -> object:
        return self.__getattr__(function)(*arguments)  # type: ignore[operator]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status; the wheel's console script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if _STOPPABLE & set(given[:1]):
        early_signals.catch()
    else:
        early_signals.let_end()
        for name, functions in _DEFERRED.items():
            DeferredModule(name, functions).stand_in()
    gc.set_threshold(_OBJECTS, 10, 25)
    from claudeops.cli.command_line import call  # noqa: PLC0415 - see above
    from claudeops.cli.reply import watch_stdout  # noqa: PLC0415 - see above

    status = call(given, write_failure=watch_stdout())
    early_signals.let_end()
    early_signals.ignore()
    gc.freeze()  # else the exit searches all that was imported for circles, a quarter of a short command's time
    sys.exit(status)
