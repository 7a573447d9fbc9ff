"""The entry point of the ``claudeops`` command.

Short, because it runs first: importing the rest takes a second, and a signal that asks to stop must neither be lost nor
end in a traceback then.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Final

from claudeops.cli import early_signals

_STOPPABLE: Final = frozenset({"run", "bootstrap", "rehearse"})
"""Commands that start sessions and stop them in an orderly way. A signal simply ends any other command."""

_OBJECTS: Final = 250_000
"""Made and not freed before a search for circles among them: a daemon's imports leave 210,000, and none is garbage."""

_DEFERRED: Final = {"asyncio": ("iscoroutine",), "importlib.metadata": (), "inspect": ()}
"""Modules that SQLAlchemy and click import for a use which most commands never make, with the functions that are named
then.

Those of SQLAlchemy, with what they import, take a fifth of the time that it takes; that of click a tenth of ``--help``.
"""

_DEFERRED_BY_ALL: Final = "importlib.metadata"
"""A daemon has an event loop and its signatures, but reads nothing about installed packages."""


def cleandoc(text: str) -> str:
    """Return what `inspect.cleandoc` returns, which is all that click uses of its module for a text of help."""
    first, *rest = text.expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    lines = [first.lstrip(), *(line[margin:] for line in rest)]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return "\n".join(lines)


_OWN: Final = {"inspect": (cleandoc,)}


class DeferredModule(ModuleType):
    """Stands for a module until anything of it is used, and imports it then."""

    def __init__(self, name: str, functions: Sequence[str] = (), *, own: Sequence[Callable[..., object]] = ()) -> None:
        """Stand for a module whose ``functions`` can be named without an import of it, ``own`` called as well."""
        super().__init__(name)
        for function in functions:
            setattr(self, function, partial(self._call, function))
        for instead in own:
            setattr(self, instead.__name__, instead)

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
        DeferredModule(_DEFERRED_BY_ALL).stand_in()
    else:
        early_signals.let_end()
        for name, functions in _DEFERRED.items():
            DeferredModule(name, functions, own=_OWN.get(name, ())).stand_in()
    gc.set_threshold(_OBJECTS, 10, 25)
    from claudeops.cli.command_line import call  # noqa: PLC0415 - see above
    from claudeops.cli.reply import watch_stdout  # noqa: PLC0415 - see above

    status = call(given, write_failure=watch_stdout())
    early_signals.let_end()
    early_signals.ignore()
    gc.freeze()  # else the exit searches all that was imported for circles, a quarter of a short command's time
    sys.exit(status)
