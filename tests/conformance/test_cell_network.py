"""A session of the real CLI on a network of its own, the gate wide open: what is listed is reached, and no more."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from claudeops.engine.cell.cell import IsolationLevel
from claudeops.engine.cell.own_network import NameLookup
from claudeops.formats.network.headers import SecretHeader
from claudeops.structs import replace
from support.caged import caged
from support.certificates import make_authority, serving_with
from support.echoing_site import echoing_site
from support.levels import needs
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

NAME = "web1.example"


class Site(BaseHTTPRequestHandler):
    """Answers with the host by whose name it was asked."""

    def do_GET(self) -> None:
        content = f"the site of {self.headers['Host']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def site() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(PATIENCE_SECONDS)


def ask(*urls: str) -> str:
    return "; ".join(f"curl -sS -m 60 {url} 2>&1" for url in urls)


async def test_a_tool_reaches_what_the_operators_variables_name_and_nothing_else(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    with site() as listed, site() as unlisted:
        by_name, elsewhere = f"http://{NAME}:{listed}", f"http://127.0.0.1:{unlisted}"
        commands = (ask(by_name), ask(elsewhere), ask("http://other.example"), "cat /etc/hosts; cat /proc/net/tcp")
        async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, *commands, binary=everybodys_cli, SITE=by_name) as cage:
            cage.estate.with_context(names=NameLookup({NAME: ("127.0.0.1",)}.__getitem__))
            ending = await cage.run()
            seen, refused, unknown, hosts = cage.outputs()[:4]
            told = cage.requests()
        assert (str(ending.outcome), ending.calls_ran) == ("success", 4)
    assert f"the site of {NAME}:{listed}" in seen
    assert "Couldn't connect" in refused or "Failed to connect" in refused
    assert "Could not resolve" in unknown
    assert f"127.0.0.1 {NAME}" in hosts
    assert f":{unlisted:04X} " not in hosts
    assert f"{NAME} ({listed})" in told, "the model reads what it reaches"


async def test_a_tool_asks_without_a_key_and_no_part_of_the_session_has_it(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    secret = f"planted-{secrets.token_hex(12)}"
    authority = make_authority()
    certificate = authority.issue(tmp_path / "site.pem", names=(NAME,))
    with echoing_site(serving_with(certificate)) as other:
        url = f"https://{NAME}:{other.port}/forms"
        header = SecretHeader(
            host=NAME,
            port=other.port,
            name="Authorization",
            value=f"Bearer {secret}",
            secrets=(secret,),
            authority=authority.pem,
        )
        everywhere = (
            "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -rs plan[t]ed ~ . /etc /tmp"
        )
        commands = (f"{ask(url)}; printenv SSL_CERT_FILE", everywhere)
        async with caged(tmp_path, IsolationLevel.BUBBLEWRAP, *commands, binary=everybodys_cli) as cage:
            tiers = {n: replace(tier, headers=(header,)) for n, tier in cage.estate.context.tiers.items()}
            cage.estate.with_context(names=NameLookup({NAME: ("127.0.0.1",)}.__getitem__), tiers=tiers)
            ending = await cage.run()
            answer, found = cage.outputs()[:2]
            told = cage.requests()
            logged = cage.estate.logged.getvalue()
        assert (str(ending.outcome), ending.calls_ran) == ("success", 2)
        assert [head["authorization"] for head in other.heads] == [f"Bearer {secret}"]
    assert "[redacted]" in answer
    assert "/run/claudeops/certificates.pem" in answer
    assert f"https://{NAME}:{other.port} (Authorization)" in told, "the model knows where it needs no key"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3, "the database and the log of the session are among them"
    assert not any(secret.encode() in path.read_bytes() for path in files)
    assert secret not in answer + found + told + logged


async def test_where_the_operator_shares_the_network_a_tool_reaches_what_the_machine_reaches(
    tmp_path: Path, everybodys_cli: Path
) -> None:
    needs(IsolationLevel.BUBBLEWRAP)
    with site() as port:
        async with caged(
            tmp_path, IsolationLevel.BUBBLEWRAP, ask(f"http://127.0.0.1:{port}"), binary=everybodys_cli
        ) as cage:
            cage.share_network()
            await cage.run()
            assert f"the site of 127.0.0.1:{port}" in cage.outputs()[0]
            assert "connections lead to these ports alone" not in cage.requests()
