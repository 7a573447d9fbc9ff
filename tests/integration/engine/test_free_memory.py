"""Memory that is free goes back to the kernel, and nothing is done for it where there is none."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from claudeops.engine.system import GROWN_BYTES, FreeMemory

HELD: Final = """
import queue, threading
from claudeops.engine.system import FreeMemory, _resident, keep_one_heap
import anyio, sys
if "one" in sys.argv:
    keep_one_heap()
todo, done = queue.SimpleQueue(), queue.SimpleQueue()

def work():
    while todo.get() is not None:
        done.put([bytes(100_000) for _ in range(300)])
        done.put(None)

threading.Thread(target=work, daemon=True).start()
memory, before = FreeMemory(), _resident()
todo.put(1)
made = done.get()
done.get()
del made
anyio.run(memory.give_back)
print((_resident() - before) // 1024 // 1024)
"""


class Machine:
    """A process whose resident memory is what the test says."""

    def __init__(self) -> None:
        self.bytes = 100 * GROWN_BYTES
        self.trims = 0

    def resident(self) -> int:
        return self.bytes

    def trim(self) -> None:
        self.trims += 1
        self.bytes -= GROWN_BYTES // 2


async def test_a_process_that_has_not_grown_is_left_alone() -> None:
    machine = Machine()
    memory = FreeMemory(machine.resident, machine.trim)
    await memory.give_back()
    machine.bytes += GROWN_BYTES
    await memory.give_back()
    assert machine.trims == 0


async def test_growth_is_given_back_once_and_what_stays_is_no_growth() -> None:
    machine = Machine()
    memory = FreeMemory(machine.resident, machine.trim)
    machine.bytes += 3 * GROWN_BYTES
    for _ in range(3):
        await memory.give_back()
    assert machine.trims == 1
    machine.bytes += 2 * GROWN_BYTES
    await memory.give_back()
    assert machine.trims == 2


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_what_a_thread_held_goes_back_too() -> None:
    done = subprocess.run([sys.executable, "-c", HELD, "one"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8
