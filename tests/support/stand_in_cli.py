#!/usr/bin/env python3
"""A CLI that speaks the control protocol and misbehaves on command.

It reads its steps from the JSON file named by ``STAND_IN_STEPS`` (a list; or an object of lists, one for each
``CLAUDEOPS_TIER``; ``{{session_id}}`` and ``{{cwd}}`` in it are replaced), takes ``initialize`` and the user message
from stdin like the real one, and then does one step after the other:

``{"frame": {...}}``          print a frame (``session_id`` is filled in)
``{"raw": "...", "times": n}`` print text as it is, n times
``{"line_of": n}``            print one assistant frame of n bytes of text
``{"play": name}``            print the file that a variable names: a write for each line, as fast as it is read
``{"count_to": n, "every": s}``    say the numbers from 1 on, a line each
``{"tool": {"id", "name", "input", "output", "ungated", "fails", "left_open", "ran"}}``  ask the gate, run
                              nothing, print call and result; ``permission_input`` is what it asks for after an
                              ``ask``, ``within`` the call of the subagent that makes it
``{"ask_in_turn": [...], "times": n}``  ask the gate n times about these commands, and print for how long it waited
``{"result": {...}}``         print a result frame (defaults: success, one turn, a cost)
``{"await_user": true}``      wait for one more user message (a repair turn)
``{"await_answer": id}``      wait for the answer to a control request of its own
``{"await": path}``           wait until that file is there
``{"await_eof": true}``       wait until stdin is closed
``{"await_interrupt": true}`` wait for the interrupt that is ignored
``{"stderr": "...", "times": n}``  write to stderr
``{"ignore": ["SIGTERM", ...]}``   ignore signals; ``"interrupt"`` ignores the control request
``{"stray": path}``           leave a process in a session of its own; its pid goes to path
``{"heir": path, "says": s}``   leave one that inherits stdout and speaks up after the exit; its pid goes to path
``{"close_stdout": true}``    close stdout and live on
``{"leave": {name: text}}``   write files into ``CLAUDEOPS_STATE_DIR``
``{"repeat": step, "every": s}``   do a step again and again, for ever
``{"grow": text, "every": s, "times": n}``   add to the transcript that the real CLI keeps for itself
``{"eat": n}``                take n MiB of memory, for good
``{"fork": n}``               start n processes that sleep
``{"fill": n}``               write a file of n MiB into the working directory
``{"tell": directory}``       write into ``<session id>.json`` there how it was started: arguments, environment, stdin;
                              and what it has heard so far
``{"ask_model": {...}}``      make one model call as the real CLI does, with these fields of the request;
                              ``"may_fail": true``: go on if it is refused
``{"die": "SIGTERM"}``        end by a signal of its own
``{"touch": path}``           tell the test that this point was reached
``{"hang": true}``            do nothing for ever, as far as signals let it
``{"exit": n}``               end
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SESSION_ID = sys.argv[sys.argv.index("--session-id") + 1] if "--session-id" in sys.argv else "none"
INBOX: queue.Queue[dict[str, Any] | None] = queue.Queue()
HEARD: list[dict[str, Any]] = []
IGNORED: set[str] = set()
EATEN: list[bytes] = []
WAITED_MS: list[float] = []  # for answers of the gate


def emit(frame: dict[str, Any]) -> None:
    write(json.dumps({**frame, "session_id": SESSION_ID}) + "\n")


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def play(path: str) -> None:
    for line in Path(path).read_bytes().splitlines(keepends=True):
        rest = line
        while rest := rest[os.write(1, rest) :]:
            pass


def listen() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("request", {}).get("subtype") == "interrupt" and "interrupt" not in IGNORED:
            emit(result({"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_tools"}))
            os._exit(0)
        HEARD.append(message)
        INBOX.put(message)
    INBOX.put(None)


def receive(kind: str) -> dict[str, Any]:
    while (message := INBOX.get()) is not None:
        if message["type"] == kind:
            return message
    os._exit(0)


def answer_to(request: str) -> dict[str, Any]:
    """Wait for the answer to a request of ours; one to another number is not it, however early it comes."""
    while (response := receive("control_response")["response"])["request_id"] != request:
        pass
    answer: dict[str, Any] = response.get("response", {})  # an error has none
    return answer


def result(overrides: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "num_turns": 2,
        "total_cost_usd": 0.01,
        "usage": {"input_tokens": 100, "output_tokens": 20},
        **overrides,
    }


def ask_tool(tool: dict[str, Any]) -> None:
    tool_id, name, given = tool["id"], tool.get("name", "Bash"), tool.get("input", {})
    use = {"type": "tool_use", "id": tool_id, "name": name, "input": given}
    within = {"parent_tool_use_id": tool["within"]} if "within" in tool else {}
    emit({"type": "assistant", "message": {"role": "assistant", "content": [use]}, **within})
    allowed = True
    if not tool.get("ungated"):
        asked = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": given, "tool_use_id": tool_id}
        asked |= {"agent_id": tool["within"]} if within else {}
        request = {"subtype": "hook_callback", "callback_id": "gate", "input": asked, "tool_use_id": tool_id}
        began = time.perf_counter()
        emit({"type": "control_request", "request_id": f"q-{tool_id}", "request": request})
        answer = answer_to(f"q-{tool_id}")["hookSpecificOutput"]
        WAITED_MS.append((time.perf_counter() - began) * 1000)
        allowed = answer["permissionDecision"] == "allow"
        if answer["permissionDecision"] == "ask":
            allowed = may_run(tool_id, name, tool.get("permission_input", given))
    if tool.get("left_open"):
        return
    if "ran" in tool:  # what the hook after the call is told
        told = {"hook_event_name": "PostToolUse", "tool_name": name, "tool_input": tool["ran"], "tool_use_id": tool_id}
        request = {"subtype": "hook_callback", "callback_id": "ran", "input": told, "tool_use_id": tool_id}
        emit({"type": "control_request", "request_id": f"r-{tool_id}", "request": request})
        answer_to(f"r-{tool_id}")
    output = tool.get("output", "ok") if allowed else tool.get("refusal", "denied")
    is_error = bool(tool.get("fails")) or not allowed
    block = {"type": "tool_result", "tool_use_id": tool_id, "content": output, "is_error": is_error}
    emit({"type": "user", "message": {"role": "user", "content": [block]}, **within})


def may_run(tool_id: str, name: str, given: dict[str, Any]) -> bool:
    request = {"subtype": "can_use_tool", "tool_name": name, "input": given, "tool_use_id": tool_id}
    emit({"type": "control_request", "request_id": f"p-{tool_id}", "request": request})
    answer = answer_to(f"p-{tool_id}")
    return bool(answer["behavior"] == "allow" and answer["updatedInput"] == given)


def leave_stray(path: str) -> None:
    stray = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    Path(path).write_text(str(stray.pid), encoding="ascii")


def grow_transcript(text: str) -> None:
    project = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / "-work"
    project.mkdir(parents=True, exist_ok=True)
    with (project / f"{SESSION_ID}.jsonl").open("a", encoding="utf-8") as transcript:
        transcript.write(text)


def tell_surroundings(directory: str) -> None:
    told = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "heard": list(HEARD),
        "stdin_is_a_socket": stat.S_ISSOCK(os.fstat(0).st_mode),
    }
    (Path(directory) / f"{SESSION_ID}.json").write_text(json.dumps(told), encoding="utf-8")


@functools.cache
def key_of_descriptor() -> str:
    return os.read(int(os.environ["CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR"]), 4096).decode()


def ask_model(asked: dict[str, Any]) -> None:
    import urllib.request  # noqa: PLC0415 - half of the start-up, and most sessions of the tests ask no model

    request = urllib.request.Request(  # noqa: S310 - the URL is the test's own
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true",
        data=json.dumps({"max_tokens": 100, "messages": [], "tools": [{"name": "Bash"}], **asked}).encode(),
        headers={
            "content-type": "application/json",
            "x-api-key": key_of_descriptor(),
            "anthropic-version": "2023-06-01",
        },
    )
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - as above
        answer.read()


def do(step: dict[str, Any]) -> None:  # noqa: C901, PLR0912, PLR0915 - a table of one-liners
    match step:
        case {"frame": frame}:
            emit(frame)
        case {"raw": text}:
            write(text * step.get("times", 1))
        case {"line_of": size}:
            text = {"type": "text", "text": "x" * size}
            emit({"type": "assistant", "message": {"role": "assistant", "content": [text]}})
        case {"play": name}:
            play(os.environ[name])
        case {"count_to": last, "every": seconds}:
            for number in range(1, last + 1):
                text = {"type": "text", "text": f"this is number {number}"}
                emit({"type": "assistant", "message": {"role": "assistant", "content": [text]}})
                time.sleep(seconds)
        case {"tool": tool}:
            ask_tool(tool)
        case {"ask_in_turn": commands, "times": times}:
            WAITED_MS.clear()
            for number in range(times):
                ask_tool({"id": f"toolu_of_{number}", "input": {"command": commands[number % len(commands)]}})
            emit({"type": "system", "subtype": "stand_in", "waited_ms": WAITED_MS})
        case {"result": overrides}:
            emit(result(overrides))
        case {"await_user": _}:
            receive("user")
        case {"await_answer": request}:
            answer_to(request)
        case {"await_interrupt": _}:
            receive("control_request")
        case {"await_eof": _}:
            while INBOX.get() is not None:
                pass
        case {"stderr": text}:
            sys.stderr.write(text * step.get("times", 1))
            sys.stderr.flush()
        case {"ignore": names}:
            for name in names:
                IGNORED.add(name)
                if name.startswith("SIG"):
                    signal.signal(signal.Signals[name], signal.SIG_IGN)
        case {"stray": path}:
            leave_stray(path)
        case {"heir": path, "says": text}:
            heir = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    f"while kill -0 {os.getpid()} 2>/dev/null; do sleep 0.05; done; echo {text}; sleep 600",
                ],
                start_new_session=True,
            )
            Path(path).write_text(str(heir.pid), encoding="ascii")
        case {"close_stdout": _}:
            os.close(1)
        case {"leave": files}:
            for name, text in files.items():
                (Path(os.environ["CLAUDEOPS_STATE_DIR"]) / name).write_text(text, encoding="utf-8")
        case {"repeat": repeated, "every": seconds}:
            while True:
                do(repeated)
                time.sleep(seconds)
        case {"grow": text, "every": seconds, "times": times}:
            for _ in range(times):
                grow_transcript(text)
                time.sleep(seconds)
        case {"eat": mebibytes}:
            EATEN.append(b"x" * (mebibytes << 20))
        case {"fork": count}:
            for _ in range(count):
                subprocess.Popen(["sleep", "60"])
        case {"fill": mebibytes}:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            with contextlib.suppress(OSError), Path("filled").open("wb") as file:  # no file may be so large
                file.write(bytes(mebibytes << 20))
        case {"tell": directory}:
            tell_surroundings(directory)
        case {"ask_model": asked}:
            with contextlib.suppress(*([OSError] if step.get("may_fail") else [])):
                ask_model(asked)
        case {"die": name}:
            os.kill(os.getpid(), signal.Signals[name])
        case {"await": path}:
            while not Path(path).exists():
                time.sleep(0.01)
        case {"touch": path}:
            Path(path).touch()
        case {"hang": _}:
            while True:
                signal.pause()
        case {"exit": code}:
            os._exit(code)


def main() -> None:
    if "--version" in sys.argv:
        print("2.1.999 (stand-in)")  # noqa: T201
        return
    threading.Thread(target=listen, daemon=True).start()
    text = Path(os.environ["STAND_IN_STEPS"]).read_text(encoding="utf-8").replace("{{session_id}}", SESSION_ID)
    text = text.replace("{{cwd}}", str(Path.cwd()))
    steps = json.loads(text)
    for step in steps if isinstance(steps, list) else steps[os.environ["CLAUDEOPS_TIER"]]:
        if not step.get("before_opening"):
            do(step)
    os._exit(0)


main()
