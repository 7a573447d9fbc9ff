"""A header with a secret: the host gets it, the session has it nowhere, and nothing but that host gets it."""

from __future__ import annotations

import io
import json
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from claudeops import logs
from claudeops.domain.estate.estate import Estate
from claudeops.engine.cell import workspace as workspaces
from claudeops.engine.cell.bubblewrap import interpreter
from claudeops.engine.cell.cell import Cell, IsolationLevel, SandboxSpec
from claudeops.engine.cell.headers.trust import variables
from claudeops.engine.cell.levels import HostContext, try_level
from claudeops.engine.cell.own_network import NameLookup
from claudeops.engine.cell.reach import Needs, ReachedPlace, open_reach
from claudeops.formats.network.headers import SecretHeader
from claudeops.policy.tiers import parse_policy, tier_policy
from support.certificates import Authority, make_authority, serving_with
from support.echoing_site import Site, echoing_site
from support.levels import PATH, needs
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

HOST = "metrics.example"
OTHER = "other.example"
SECRET = "glpat/planted+secret=0123456789"
VALUE = f"Bearer {SECRET}"
BASH = Path("/bin/bash")
HERE = {HOST: ("127.0.0.1",), OTHER: ("127.0.0.1",)}


def header(port: int, authority: Authority | None = None, **more: object) -> SecretHeader:
    given: dict[str, object] = {
        "host": HOST,
        "port": port,
        "tls": authority is not None,
        "name": "Authorization",
        "value": VALUE,
        "secrets": (SECRET,),
        "authority": "" if authority is None else authority.pem,
        **more,
    }
    return SecretHeader(**given)  # type: ignore[arg-type]  # a test names its fields


@cache
def cell_of() -> Cell:
    found = try_level(IsolationLevel.BUBBLEWRAP, HostContext(path=PATH))
    assert not isinstance(found, str), found
    return found


@dataclass
class Session:
    """A session's place, in which scripts run one after another."""

    root: Path
    reach: ReachedPlace
    logged: io.StringIO
    given: Mapping[str, str]

    async def run(self, script: str) -> str:
        """Return what a script prints on both outputs."""
        with anyio.fail_after(PATIENCE_SECONDS * 4):
            return await anyio.to_thread.run_sync(self._run, script)

    def _run(self, script: str) -> str:
        cell = cell_of()
        workspace = workspaces.make(self.root / "session", template_home=None)
        cell.hand_over(workspace)
        (self.root / "repos").mkdir(exist_ok=True)
        network = self.reach.network
        spec = SandboxSpec(
            workspace=workspace,
            binary=BASH,
            repos_dir=self.root / "repos",
            path=PATH,
            shown=interpreter(),
            network=network,
            trusted=self.given,
        )
        enclosed = cell.enclose(spec)
        trusted = variables(network.relayed, self.given) if network.authority else {}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(b"go\n")
            done = subprocess.run(
                [*enclosed.before, str(theirs.fileno()), enclosed.binary, "--norc", "-c", script],
                env={"HOME": str(workspace.home), "PATH": PATH, **trusted},
                cwd=workspace.workdir,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(*enclosed.inherited, theirs.fileno()),
                check=False,
                timeout=PATIENCE_SECONDS,
            )
        return done.stdout.decode("utf-8", "replace")

    def events(self, name: str) -> list[dict[str, object]]:
        """Return the lines of the log of one kind."""
        lines = map(json.loads, self.logged.getvalue().splitlines())
        return [line for line in lines if line["event"] == name]


@asynccontextmanager
async def session(
    root: Path, headers: Sequence[SecretHeader], *, listed: Sequence[tuple[str, int]] = (), **given: str
) -> AsyncIterator[Session]:
    needs(IsolationLevel.BUBBLEWRAP)
    logged = io.StringIO()
    logs.configure(level="info", fmt="json", stream=logged, redact=str)
    wanted = Needs(
        tier=tier_policy(parse_policy("[tiers.1]\n"), 1),
        estate=Estate(),
        environment={},
        home=root,
        endpoints=listed,
        headers=headers,
    )
    async with open_reach(wanted, NameLookup(HERE.__getitem__), logs.get_logger()) as reach:
        yield Session(root, reach, logged, given)


@pytest.fixture
def authority() -> Authority:
    return make_authority()


@pytest.fixture
def tls(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    return serving_with(authority.issue(tmp_path / "site.pem", names=(HOST, OTHER)))


def shown(site: Site) -> list[str | None]:
    return [head.get("authorization") for head in site.heads]


PROGRAMS = {
    "curl": "curl -sS -m 60 {url}",
    "python": """python3 -c 'import urllib.request; print(urllib.request.urlopen("{url}").read().decode())'""",
    "node": """node -e 'fetch("{url}").then(a => a.text()).then(console.log)'""",
    "git": "git -c protocol.allow=always ls-remote {url}",
    "wget": "wget -qO- {url}",
    "openssl": (
        """printf 'GET / HTTP/1.1\\r\\nHost: {place}\\r\\nConnection: close\\r\\n\\r\\n' | """
        """openssl s_client -quiet -verify_return_error -servername {host} -connect {place}"""
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_of_the_session_asks_without_a_key_and_the_host_sees_it(
    program: str, tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    with echoing_site(tls) as site:
        place = f"{HOST}:{site.port}"
        async with session(tmp_path, [header(site.port, authority)]) as cell:
            command = PROGRAMS[program].format(url=f"https://{place}/", place=place, host=HOST)
            said = await cell.run(f"type {program if program != 'python' else 'python3'} >/dev/null && {command}")
            if "not found" in said and not site.heads:
                pytest.skip(f"there is no {program} here")
        assert shown(site)[0] == VALUE, said
        assert SECRET not in said
        assert program == "git" or "[redacted]" in said
    assert cell.events("network_closed")[0]["headers_added"] == len(site.heads)
    assert SECRET not in cell.logged.getvalue()


async def test_without_tls_too_the_sessions_own_value_is_replaced_and_each_form_that_comes_back_is_redacted(
    tmp_path: Path,
) -> None:
    with echoing_site() as site:
        url = f"http://{HOST}:{site.port}"
        async with session(tmp_path, [header(site.port)]) as cell:
            said = await cell.run(
                f"curl -sSi -H 'authorization: mine' -H 'Range: bytes=0-3' --compressed {url}/forms {url}/chunks "
                f"{url}/elsewhere {url}/events; curl -sSI {url}/forms"
            )
        assert shown(site) == [VALUE] * 5
        assert {head["accept-encoding"] for head in site.heads} == {"identity"}
        assert not any("range" in head for head in site.heads)
        assert len(site.connections) == 2, "kept open, as the session does"
    assert '["[redacted]", "[redacted]", "[redacted]", "[redacted]"]' in said
    assert "x-echo: [redacted]" in said
    assert "location: http://127.0.0.1:1/?key=[redacted]" in said
    assert "data: [redacted]\n\ndata: 2" in said.replace("\r", "")
    assert "[redacted] " * 50 in said
    assert SECRET[:8] not in said


async def test_bodies_go_both_ways_whole_and_an_answer_that_is_cut_is_not_made_whole(
    tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    with echoing_site(tls) as site:
        url = f"https://{HOST}:{site.port}"
        async with session(tmp_path, [header(site.port, authority)]) as cell:
            said = await cell.run(
                f"head -c 3000000 /dev/zero | tr '\\0' x >large; curl -sS {url}/large | wc -c; "
                f"curl -sS -T large {url}/put | tail -c 20; echo; "
                f"curl -sS -H 'Transfer-Encoding: chunked' --data-binary @large {url}/post | wc -c; "
                f"curl -sS -X POST {url}/none; echo; curl -sS {url}/cut; echo cut=$?; "
                f"curl -sS --http1.0 {url}/last; echo old=$?; curl -sS {url}/last {url}/; echo $?"
            )
    lines = said.splitlines()
    assert lines[0] == str(1 << 20)
    assert lines[1].endswith("xx by [redacted]")
    assert lines[2] == str(3_000_000 + len(" by [redacted]"))
    assert lines[3] == " by [redacted]"
    assert "cut=18" in said, said
    assert "[redacted]old=0" in said
    assert said.endswith("}0\n"), said


REFUSED = {
    "-H 'Host: other.example'": "421",
    "-H 'Host: metrics.example.evil.example'": "421",
    "-H 'Host:'": "400",
    "-X TRACE": "501",
    "-H 'Connection: Upgrade' -H 'Upgrade: websocket'": "501",
    "--request-target http://other.example/": "400",
    "-H 'Transfer-Encoding: chunked' -H 'Content-Length: 3' -d abc": "400",
}


@pytest.mark.parametrize("options", REFUSED)
async def test_what_could_lead_the_secret_elsewhere_is_refused_with_a_sentence_and_nothing_goes_out(
    options: str, tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    with echoing_site(tls) as site:
        async with session(tmp_path, [header(site.port, authority)]) as cell:
            said = await cell.run(f"curl -sSi {options} https://{HOST}:{site.port}/")
        assert site.heads == []
    assert f"HTTP/1.1 {REFUSED[options]}" in said
    assert "claudeops: " in said
    (event,) = cell.events("header_not_added")
    assert event["host"] == HOST
    assert cell.events("network_closed")[0]["headers_refused"] == 1


async def test_another_name_at_the_same_address_and_port_is_reached_as_before_and_gets_no_secret(
    tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    with echoing_site(tls) as site, echoing_site() as plain:
        headers = [header(site.port, authority), header(plain.port)]
        listed = [(OTHER, site.port), (OTHER, plain.port)]
        async with session(tmp_path, headers, listed=listed) as cell:
            said = await cell.run(
                f"curl -sSk https://{OTHER}:{site.port}/; curl -sSk https://127.0.0.1:{site.port}/ "
                f"-H 'Host: {HOST}:{site.port}'; curl -sS http://{OTHER}:{plain.port}/; "
                f"curl -sSo /dev/null -w '%{{http_code}}' http://{HOST}:{plain.port}/ -H 'Host: third.example'"
            )
        assert (shown(site), shown(plain)) == ([None, None], [None])
    assert said.endswith("421"), said


async def test_a_host_whose_certificate_is_not_good_gets_no_secret_and_the_log_says_why(
    tmp_path: Path, authority: Authority
) -> None:
    bad = serving_with(authority.issue(tmp_path / "bad.pem", names=("elsewhere.example",)))
    with echoing_site(bad) as site:
        async with session(tmp_path, [header(site.port, authority)]) as cell:
            said = await cell.run(f"curl -sSi https://{HOST}:{site.port}/")
        assert site.heads == []
    assert "HTTP/1.1 502" in said
    assert "Hostname mismatch" in str(cell.events("header_not_added")[0]["error"])


async def test_an_answer_that_comes_compressed_all_the_same_is_kept_back(tmp_path: Path) -> None:
    with echoing_site() as site:
        async with session(tmp_path, [header(site.port)]) as cell:
            said = await cell.run(f"curl -sSi --compressed http://{HOST}:{site.port}/compressed")
    assert "HTTP/1.1 502" in said
    assert "compressed" in said


async def test_the_session_trusts_its_own_authority_for_nothing_else_and_what_the_operator_had_it_trust(
    tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    own = tmp_path / "operators.pem"
    own.write_text(authority.pem)
    with echoing_site(tls) as site, echoing_site(tls) as other:
        listed = [(OTHER, other.port)]
        operators = {"NODE_EXTRA_CA_CERTS": str(own)}
        async with session(tmp_path, [header(site.port, authority)], listed=listed, **operators) as cell:
            with_it = await cell.run(f"curl -sS https://{OTHER}:{other.port}/ https://{HOST}:{site.port}/")
        async with session(tmp_path, [header(site.port, authority)], listed=listed) as cell:
            without = await cell.run(
                f"curl -sS https://{OTHER}:{other.port}/; cat $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS; ls /run/claudeops"
            )
    assert with_it.lower().count('"host"') == 2, with_it
    assert "certificate" in without
    assert "PRIVATE KEY" not in without
    assert without.count("BEGIN CERTIFICATE") >= 2


LOOK_FOR_IT = r"""
printenv; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'
grep -rIl --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=dev -e 'plan[t]ed' / 2>/dev/null
"""


async def test_the_secret_and_the_authoritys_key_are_nowhere_in_the_cell_nor_on_the_disk(
    tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    with echoing_site(tls) as site:
        async with session(tmp_path, [header(site.port, authority)]) as cell:
            said = await cell.run(f"curl -sS -o kept -D head https://{HOST}:{site.port}/forms; {LOOK_FOR_IT}")
            kept = [path for path in (tmp_path / "session").rglob("*") if path.is_file()]
            texts = [path.read_bytes() for path in kept]
        assert shown(site) == [VALUE]
    assert "planted" not in said, said
    assert any(b"[redacted]" in text for text in texts)
    assert not any(SECRET.encode() in text or b"PRIVATE KEY" in text for text in texts)
    assert "planted" not in cell.logged.getvalue() + repr(cell.reach) + repr(header(1))


async def test_a_connection_that_fails_touches_no_other_and_one_that_says_nothing_is_copied(
    tmp_path: Path, authority: Authority, tls: ssl.SSLContext
) -> None:
    with echoing_site(tls) as site:
        place, url = f"{HOST} {site.port}", f"https://{HOST}:{site.port}/"
        async with session(tmp_path, [header(site.port, authority)]) as cell:
            said = await cell.run(
                f"exec 3<>/dev/tcp/{place.replace(' ', '/')}; echo idle=$?; "
                f"curl -sS --cacert /dev/null {url}; echo untrusting=$?; "
                f"head -c 100000 /dev/urandom >/dev/tcp/{place.replace(' ', '/')}; "
                f"curl -sS --next {url} -o /dev/null -w '%{{http_code}}\\n'"
            )
    assert "idle=0" in said
    assert said.endswith("200\n"), said
