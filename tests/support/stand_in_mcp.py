#!/usr/bin/env python3
"""An MCP server with two tools: ``tell`` prints the environment it was started with, ``hang`` never answers.

Speaks JSON-RPC over stdin and stdout, a message a line.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = [
    {"name": "tell", "description": "Tell the environment.", "inputSchema": {"type": "object"}},
    {"name": "hang", "description": "Never answer.", "inputSchema": {"type": "object"}},
]


def answer(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stand-in", "version": "1"},
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": json.dumps(sorted(os.environ))}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and message.get("params", {}).get("name") != "hang":
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


main()
