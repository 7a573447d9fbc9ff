"""A Telegram for rehearsals and tests: a subset of the Bot API on loopback, which records everything that it is told.

It answers ``getMe``, ``getUpdates`` (a real long poll, one at a time), ``getWebhookInfo``, ``getChat``,
``sendMessage``, ``editMessageText`` and ``answerCallbackQuery``, and refuses what the real one refuses: texts and
buttons that are too long, chats that it does not know or that have another id by now, an edit that changes nothing, a
poll of a bot that has a webhook. People are played by `tap`. It misbehaves as `TelegramFault` says.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from claudeops.http_server import disconnected, drop, listen

LIMIT: Final = 4096
MOST_DATA: Final = 64  # bytes of a button

_PATH: Final = re.compile(r"/bot([^/]+)/(\w+)")
_DRIP_SECONDS: Final = 0.2


class TelegramFault(msgspec.Struct, frozen=True, kw_only=True):
    """How a call is answered instead of as it should be."""

    status: int = 200
    description: str = ""  # of a refusal, with its kind, such as "Forbidden: bot was kicked from the group chat"
    retry_after: float | None = None
    hangs: bool = False  # there is no answer
    drips: bool = False  # there is one byte of it every now and then
    done: bool = False  # what was asked for is done all the same


class BotMessage(msgspec.Struct, kw_only=True):
    """A message of a bot, as its chat shows it now."""

    message_id: int
    chat: int
    text: str
    entities: list[dict[str, object]] = msgspec.field(default_factory=list)
    buttons: dict[str, str] = msgspec.field(default_factory=dict)  # data by what is written on them
    edits: int = 0


class TelegramCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as it came."""

    method: str
    arguments: Mapping[str, object]
    body: str


class ScriptedTelegram:
    """A running server, and everything that it was told; made by `serve_telegram`."""

    def __init__(self, *, token: str, chats: tuple[int, ...]) -> None:
        self.url = ""  # set once it takes connections
        self.token = token
        self.chats = chats
        self.calls: list[TelegramCall] = []
        self.messages: list[BotMessage] = []  # in order, each as it is now
        self.answers: dict[str, str] = {}  # what whoever tapped was told, by the id of the tap
        self.faults: dict[
            str, list[TelegramFault]
        ] = {}  # of the next calls, by method; the last one stays if it `sticks`
        self.sticks: dict[str, TelegramFault] = {}  # of every call, by method
        self.webhook = ""  # to which updates go instead
        self.moved: dict[int, int] = {}  # groups that became supergroups, by their old ids
        self.closing = anyio.Event()
        self._updates: list[dict[str, object]] = []  # that were not confirmed
        self._changed = anyio.Event()
        self._count = 0
        self._polling = False

    # --- people -----------------------------------------------------------------------------------------

    def tap(self, message: BotMessage, said: str, *, sender: int, chat: int | None = None) -> str:
        """Tap the button of a message that says so; return the id of the tap."""
        return self.forge(message, message.buttons[said], sender=sender, chat=chat)

    def forge(self, message: BotMessage, held: str, *, sender: int, chat: int | None = None) -> str:
        """Send what no button may hold, as a forged client would; return the id of the tap."""
        self._count += 1
        query = f"tap-{self._count}"
        place = {"message_id": message.message_id, "chat": {"id": message.chat if chat is None else chat}}
        callback = {"id": query, "from": {"id": sender, "is_bot": False}, "message": place, "data": held}
        self._updates.append({"update_id": 1000 + self._count, "callback_query": callback})
        self._note()
        return query

    async def wait_for(self, condition: Callable[[ScriptedTelegram], object]) -> None:
        """Return as soon as a condition holds; the caller bounds the wait."""
        while not condition(self):
            await self._changed.wait()

    @property
    def said(self) -> str:
        """Everything that it was ever told."""
        return "\n".join(f"{call.method} {call.body}" for call in self.calls)

    # --- the server -------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        found = _PATH.fullmatch(request.url.path)
        if found is None or found[1] != self.token:
            await JSONResponse({"ok": False, "error_code": 404, "description": "Not Found"}, 404)(scope, receive, send)
            return
        method, arguments = found[2], msgspec.json.decode(body or b"{}", type=dict[str, object])
        self.calls.append(TelegramCall(method=method, arguments=arguments, body=body.decode()))
        waiting = self.faults.get(method) or []
        fault = waiting.pop(0) if waiting else self.sticks.get(method)
        self._note()
        if fault is not None:
            if fault.done:
                await self._answer(method, arguments)
            await (self._stall if fault.hangs or fault.drips else self._refuse)(fault, scope, receive, send)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_gone, receive, tasks.cancel_scope)
                answer = await self._answer(method, arguments)
                status = int(str(answer.get("error_code", 200)))
                await JSONResponse(answer, status)(scope, receive, send)
                tasks.cancel_scope.cancel()
        finally:
            self._note()

    async def _until_gone(self, receive: Receive, request: anyio.CancelScope) -> None:
        await disconnected(receive)
        request.cancel()

    async def _refuse(self, fault: TelegramFault, scope: Scope, receive: Receive, send: Send) -> None:
        parameters = {} if fault.retry_after is None else {"parameters": {"retry_after": fault.retry_after}}
        description = fault.description or f"scripted {fault.status}"
        said = {"ok": False, "error_code": fault.status, "description": description, **parameters}
        await JSONResponse(said, fault.status)(scope, receive, send)

    async def _stall(self, fault: TelegramFault, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_gone, receive, tasks.cancel_scope)
            if fault.drips:
                await send({"type": "http.response.start", "status": 200, "headers": []})
            while not self.closing.is_set():
                if fault.drips:
                    await send({"type": "http.response.body", "body": b" ", "more_body": True})
                with anyio.move_on_after(_DRIP_SECONDS):
                    await self.closing.wait()
            tasks.cancel_scope.cancel()
        await drop(scope, receive, unsent=False)

    async def _answer(self, method: str, arguments: Mapping[str, object]) -> dict[str, object]:
        match method:
            case "getMe" | "getWebhookInfo" | "getChat":
                return self._look(method, arguments)
            case "getUpdates":
                return await self._poll(arguments)
            case "sendMessage" | "editMessageText":
                return (self._send if method == "sendMessage" else self._edit)(arguments)
            case "answerCallbackQuery":
                self.answers[str(arguments["callback_query_id"])] = str(arguments.get("text", ""))
                return _ok(True)  # noqa: FBT003 - what the API answers
        return _bad("method not found", status=404)

    def _look(self, method: str, arguments: Mapping[str, object]) -> dict[str, object]:
        if method == "getChat":
            return self._unreachable(arguments) or _ok({"id": arguments["chat_id"], "type": "group"})
        of_bot = {"id": 1, "is_bot": True, "first_name": "claudeops"}
        return _ok(of_bot if method == "getMe" else {"url": self.webhook, "pending_update_count": len(self._updates)})

    async def _poll(self, arguments: Mapping[str, object]) -> dict[str, object]:
        if self.webhook:
            use = "use deleteWebhook to delete the webhook first"
            return _bad(f"can't use getUpdates method while webhook is active; {use}", status=409)
        if self._polling:
            return _bad("terminated by other getUpdates request", status=409)
        offset, seconds = int(str(arguments.get("offset", 0))), float(str(arguments.get("timeout", 0)))
        self._updates = [update for update in self._updates if int(str(update["update_id"])) >= offset]
        self._polling = True
        try:
            with anyio.move_on_after(seconds):
                while not self._updates and not self.closing.is_set():
                    await self._changed.wait()
        finally:
            self._polling = False
        return _ok(self._updates[: int(str(arguments.get("limit", 100)))])

    def _send(self, arguments: Mapping[str, object]) -> dict[str, object]:
        if (wrong := self._wrong(arguments)) is not None:
            return wrong
        message = BotMessage(message_id=len(self.messages) + 1, chat=int(str(arguments["chat_id"])), text="")
        _show(message, arguments)
        self.messages.append(message)
        return _ok({"message_id": message.message_id, "chat": {"id": message.chat}, "text": message.text})

    def _edit(self, arguments: Mapping[str, object]) -> dict[str, object]:
        if (wrong := self._wrong(arguments)) is not None:
            return wrong
        wanted = int(str(arguments["message_id"]))
        message = next((each for each in self.messages if each.message_id == wanted), None)
        if message is None or message.chat != int(str(arguments["chat_id"])):
            return _bad("message to edit not found")
        before = (message.text, dict(message.buttons))
        _show(message, arguments)
        if (message.text, message.buttons) == before:
            return _bad("message is not modified")
        message.edits += 1
        return _ok({"message_id": message.message_id})

    def _wrong(self, arguments: Mapping[str, object]) -> dict[str, object] | None:
        text = str(arguments.get("text", ""))
        if (unreachable := self._unreachable(arguments)) is not None:
            return unreachable
        if not text.strip():
            return _bad("message text is empty")
        if _units(text) > LIMIT:
            return _bad("message is too long")
        for entity in _entities(arguments):
            if int(str(entity["offset"])) + int(str(entity["length"])) > _units(text) or not entity["length"]:
                return _bad("can't parse entities")
        if any(not 0 < len(data.encode()) <= MOST_DATA for data in _buttons(arguments).values()):
            return _bad("BUTTON_DATA_INVALID")
        return None

    def _unreachable(self, arguments: Mapping[str, object]) -> dict[str, object] | None:
        chat = int(str(arguments["chat_id"]))
        if chat in self.moved:
            refusal = _bad("group chat was upgraded to a supergroup chat")
            return {**refusal, "parameters": {"migrate_to_chat_id": self.moved[chat]}}
        return None if chat in self.chats else _bad("chat not found")

    def _note(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


@asynccontextmanager
async def serve_telegram(*, token: str, chats: tuple[int, ...], port: int = 0) -> AsyncIterator[ScriptedTelegram]:
    """Serve in the caller's event loop until the block is left; hanging calls are dropped then."""
    server = ScriptedTelegram(token=token, chats=chats)
    async with listen(server, host="127.0.0.1", port=port, closing=server.closing) as server.url:
        try:
            yield server
        finally:
            server.closing.set()
            server._note()  # noqa: SLF001 - polls that wait end now


def _show(message: BotMessage, arguments: Mapping[str, object]) -> None:
    message.text = str(arguments["text"])
    message.entities = _entities(arguments)
    message.buttons = _buttons(arguments)


def _entities(arguments: Mapping[str, object]) -> list[dict[str, object]]:
    return msgspec.convert(arguments.get("entities", []), list[dict[str, object]])


def _buttons(arguments: Mapping[str, object]) -> dict[str, str]:
    markup = msgspec.convert(arguments.get("reply_markup", {}), dict[str, list[list[dict[str, str]]]])
    return {button["text"]: button["callback_data"] for row in markup.get("inline_keyboard", []) for button in row}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _ok(result: object) -> dict[str, object]:
    return {"ok": True, "result": result}


def _bad(description: str, *, status: int = 400) -> dict[str, object]:
    reason = "Conflict" if status == 409 else "Bad Request"  # noqa: PLR2004 - HTTP's status
    return {"ok": False, "error_code": status, "description": f"{reason}: {description}"}
