"""``systemctl`` and ``journalctl`` over the services that say ``runs_on = "systemd"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from claudeops.rehearsal.commands.answer import Answer, all_on, failed, find, last, read, table
from claudeops.rehearsal.scenario import RunsOn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from claudeops.rehearsal.estate import Estate, Running

_VALUED: Final = frozenset(
    {"-n", "--lines", "-u", "--unit", "-S", "--since", "-U", "--until", "-p", "--priority", "--state", "-t", "-o"}
)
_NOT_RUNNING: Final = 3  # systemctl(1): exit status of is-active for a unit that is not
_UNKNOWN: Final = 4  # same: no such unit
_LOG_LINES: Final = 10  # that `systemctl status` shows


async def systemctl(estate: Estate, arguments: tuple[str, ...]) -> Answer:
    """Carry out one systemctl command."""
    given = read(arguments, valued=_VALUED)
    match given.words:
        case []:
            return _listed(estate, failed_only="--failed" in given.options)
        case ["list-units", *_]:
            return _listed(estate, failed_only="--failed" in given.options)
        case ["is-active", *units] if units:
            return _active(estate, units)
        case ["status", unit]:
            return _status(estate, unit)
        case ["restart" | "try-restart" | "reload-or-restart" | "start" | "stop" as verb, *units] if units:
            return await _changed(estate, verb, units)
        case _:
            return failed(f"systemctl: this rehearsal knows no '{' '.join(arguments)}'")


async def journalctl(estate: Estate, arguments: tuple[str, ...]) -> Answer:
    """Show the log of a unit."""
    given = read(arguments, valued=_VALUED)
    unit = given.get("-u", "--unit") or ""
    running = _unit(estate, unit)
    if running is None:
        return Answer(out=["-- No entries --"])
    return Answer(out=last(running.log_lines(), given.get("-n", "--lines")))


def _unit(estate: Estate, unit: str) -> Running | None:
    return find(estate, unit.removesuffix(".service"), RunsOn.SYSTEMD)


def _state(running: Running) -> str:
    return "active" if running.is_running else "failed"


def _listed(estate: Estate, *, failed_only: bool) -> Answer:
    units = [unit for unit in all_on(estate, RunsOn.SYSTEMD) if not failed_only or not unit.is_running]
    rows = [["UNIT", "LOAD", "ACTIVE"], *([f"{unit.name}.service", "loaded", _state(unit)] for unit in units)]
    return Answer(out=[*table(rows), f"{len(units)} loaded units listed."])


def _active(estate: Estate, units: Sequence[str]) -> Answer:
    states = [_state(found) if (found := _unit(estate, unit)) else "inactive" for unit in units]
    return Answer(out=states, status=0 if "active" in states else _NOT_RUNNING)


def _status(estate: Estate, unit: str) -> Answer:
    running = _unit(estate, unit)
    if running is None:
        return failed(f"Unit {unit} could not be found.", status=_UNKNOWN)
    head = [f"{running.name}.service", f"     Active: {_state(running)} since {running.started_at.isoformat()}", ""]
    return Answer(
        out=[*head, *last(running.log_lines(), str(_LOG_LINES))], status=0 if running.is_running else _NOT_RUNNING
    )


async def _changed(estate: Estate, verb: str, units: Sequence[str]) -> Answer:
    for unit in units:
        running = _unit(estate, unit)
        if running is None:
            return failed(f"Failed to {verb} {unit}: Unit {unit} not found.", status=5)
        if verb == "stop":
            await running.stop()
        elif verb != "start" or not running.is_running:
            await running.restart()
        if verb != "stop" and not running.is_running:
            return failed(
                f"Job for {running.name}.service failed because the control process exited with error code.",
                f'See "systemctl status {running.name}.service" and "journalctl -xeu {running.name}.service".',
            )
    return Answer()
