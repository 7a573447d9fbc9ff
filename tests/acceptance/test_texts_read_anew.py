"""Prompts, library and manifests are read anew by a running daemon; what cannot be used of them is an event, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.estate import deliver, report
from support.stand_in_daemon import StandInNode, stand_in_node
from support.waiting import until

pytestmark = pytest.mark.anyio

_EVENTS = "SELECT message, fingerprint, count FROM events WHERE fingerprint LIKE '%:%' ORDER BY id"


async def tasks_of_next(node: StandInNode, told: Path) -> str:
    """Run one session to its end and return what its CLI was told."""
    before = set(told.glob("*.json"))
    await node.queue(1)
    await node.until_idle()
    (new,) = set(told.glob("*.json")) - before
    return str(json.loads(new.read_text(encoding="utf-8"))["heard"])


def told_of(node: StandInNode, fingerprint: str) -> list[tuple[str, int]]:
    """Return the events about a condition: what they say, and how often it was raised."""
    return [
        (str(row["message"]), int(str(row["count"])))
        for row in node.operator.rows(_EVENTS)
        if str(row["fingerprint"]).startswith(f"{fingerprint} on node ")
    ]


async def test_an_edit_counts_from_the_next_session_on_and_a_wrong_one_is_told_once(tmp_path: Path) -> None:
    prompt, told = tmp_path / "prompt.md", tmp_path / "told"
    prompt.write_text("Look at the attic.\n", encoding="utf-8")
    told.mkdir(mode=0o777)
    told.chmod(0o777)
    async with stand_in_node(tmp_path) as node:
        texts = tmp_path / "repos" / "media" / ".claude-ops" / "checks"
        texts.mkdir(parents=True)
        manifest = tmp_path / "repos" / "media" / "CLAUDE-OPS.md"
        manifest.write_text("# Notes\n\nNever restart the NAS.\n", encoding="utf-8")
        node.script({"await_user": True}, {"tell": str(told)}, deliver(report()))
        async with node.daemon(CLAUDEOPS_PROMPT=str(prompt), CLAUDEOPS_ISOLATION="none") as daemon:
            await daemon.until_logged("schedule_fired")  # the first round of a new daemon
            await node.until_idle()
            assert "attic" in await tasks_of_next(node, told)

            prompt.write_text("Look at the cellar.\n", encoding="utf-8")
            assert "cellar" in await tasks_of_next(node, told)
            assert told_of(node, "prompt_file:1") == []

            prompt.write_text("/clear\n", encoding="utf-8")
            (texts / "film.md").write_text("no front matter\n", encoding="utf-8")
            for _ in range(2):
                assert "cellar" in await tasks_of_next(node, told)
            ((message, count),) = told_of(node, "prompt_file:1")
            assert (message.partition(": ")[2][:32], count) == ("The prompt of tier 1 cannot be u", 1)
            ((message, count),) = told_of(node, "library:media")
            assert "media/.claude-ops/checks/film.md:1" in message
            assert count == 1

            await until(lambda: bool(told_of(node, "estate:unbound")))
            ((message, count),) = told_of(node, "estate:unbound")
            assert "media/CLAUDE-OPS.md:3: 'Never restart the NAS'" in message
            assert count == 1

            prompt.write_text("Look at the garden.\n", encoding="utf-8")
            assert "garden" in await tasks_of_next(node, told)
