"""The probes file: what an operator may write, what it then means, and how a mistake in it is told."""

from __future__ import annotations

import pytest

from claudeops.domain.estate.estate import Estate
from claudeops.domain.probes.probe import HeartbeatLook, HttpLook, Probe, ProbeState, TlsLook, kind_of, target_of
from claudeops.errors import ConfigurationError
from claudeops.formats.probes.declaration import MOST_SITES, Declaration, read_probes, unknown_services
from claudeops.formats.probes.keys import KINDS, Defaults, headers_of, referred
from claudeops.structs import replace
from claudeops.text.toml_file import TomlFault
from support.probes import estate, probe, service

SHOP = """
[[probe]]
name = "shop"
kind = "http"
url = "https://shop.example.com/health"
"""

LEAST = {
    "http": 'url = "http://web1/"',
    "tcp": 'host = "web1"\nport = 22',
    "tls": 'host = "web1"',
    "dns": 'query = "shop.example.com"',
    "icmp": 'host = "web1"',
    "postgres": 'host = "db1"',
    "mysql": 'host = "db1"',
    "redis": 'host = "db1"',
    "prometheus": 'url = "http://prom:9090"\nexpression = "up"\nbelow = 1',
    "docker": 'container = "web"',
    "kubernetes": 'workload = "deployment/web"',
    "systemd": 'unit = "nginx.service"',
    "command": 'command = "df -h"',
    "heartbeat": 'every = "1d"',
}


AT = {
    "http": "http://web1/",
    "tcp": "web1:22",
    "tls": "web1:443",
    "dns": "shop.example.com A",
    "icmp": "web1",
    "postgres": "db1:5432",
    "mysql": "db1:3306",
    "redis": "db1:6379",
    "prometheus": "http://prom:9090",
    "docker": "web",
    "kubernetes": "default/deployment/web",
    "systemd": "nginx.service",
    "command": "df -h",
    "heartbeat": "every 86400 s",
}


def read(text: str) -> Declaration:
    return read_probes(text, file="probes.toml")


def one(text: str) -> Probe:
    (found,) = read(text).probes
    return found


def table(kind: str, more: str = "", *, name: str = "x") -> str:
    return f'[[probe]]\nname = "{name}"\nkind = "{kind}"\n{more}\n'


def fault(text: str) -> tuple[int, str]:
    with pytest.raises(TomlFault) as raised:
        read(text)
    return raised.value.line, str(raised.value)


# --- what it means ------------------------------------------------------------------------------------


def test_a_probe_needs_a_name_and_what_its_kind_asks() -> None:
    assert one(SHOP) == Probe(
        name="shop",
        look=HttpLook(url="https://shop.example.com/health"),
        service="shop",
        origin="probes.toml:2",
    )


@pytest.mark.parametrize("name", ["backups/db", "a/../b", "/etc"])
def test_a_heartbeat_that_no_address_could_name_is_refused(name: str) -> None:
    with pytest.raises(TomlFault):
        read(f'[[probe]]\nname = "{name}"\nkind = "heartbeat"\nevery = "1d"\n')


def test_a_heartbeat_with_a_slash_is_told_what_to_write_and_other_probes_may_have_one() -> None:
    with pytest.raises(TomlFault) as raised:
        read('[[probe]]\nname = "backups/db"\nkind = "heartbeat"\nevery = "1d"\n')

    assert raised.value.line == 2
    assert str(raised.value) == (
        "the probe 'backups/db': name: 'backups/db' cannot be part of the address of its pings: "
        "write letters, digits and . _ - : @, and no slash"
    )
    assert one(SHOP.replace('"shop"', '"shop/eu"')).name == "shop/eu"


def test_sites_that_look_agree_by_majority_unless_a_quorum_is_written_down() -> None:
    found = [one(SHOP + f"sites = {sites}\n") for sites in ('["a"]', '["a", "b"]', '["a", "b", "c"]')]
    written = one(SHOP + 'sites = ["a", "b", "c"]\nquorum = 3\n')

    assert [(probe.sites, probe.quorum) for probe in found] == [(("a",), 1), (("a", "b"), 2), (("a", "b", "c"), 2)]
    assert (written.quorum, one(SHOP).sites, one(SHOP).quorum) == (3, (), 0)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('sites = ["a", "b"]\nquorum = 3', "quorum: 3 of 2 sites cannot agree: write 1 to 2"),
        ('sites = ["a", "b"]\nquorum = 0', "quorum: 0 of 2 sites cannot agree: write 1 to 2"),
        ("quorum = 1", "quorum: no sites are named that could agree: add 'sites', or leave it out"),
        ('sites = [" "]', "sites: ' ' is not a name of a site: write it as CLAUDEOPS_SITE does"),
        ('sites = ["a", "a"]', f"sites: name at most {MOST_SITES}, and each once"),
        (f"sites = {list(map(str, range(MOST_SITES + 1)))}", f"sites: name at most {MOST_SITES}, and each once"),
    ],
)
def test_sites_that_cannot_agree_are_refused_with_what_to_write(written: str, said: str) -> None:
    line, sentence = fault(f"{SHOP}{written}\n")

    assert sentence == f"the probe 'shop': {said}"
    assert line >= SHOP.count("\n")


def test_a_heartbeat_is_heard_by_every_site_and_looked_for_by_none() -> None:
    _, sentence = fault(table("heartbeat", 'every = "1d"\nsites = ["a"]'))

    assert sentence == "the probe 'x': sites: a ping is heard by every site, so none of them looks: leave it out"


def test_an_empty_file_declares_nothing() -> None:
    assert read("") == Declaration()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_declared_and_says_what_it_is_at(kind: str) -> None:
    look = one(table(kind, LEAST[kind])).look

    assert kind_of(look) == kind
    assert target_of(look) == AT[kind]


def test_a_duration_is_seconds_or_a_text() -> None:
    found = one(table("tcp", 'host = "a"\nport = 1\ninterval = "5m"\ntimeout = 7\nretry_interval = "500ms"'))
    tls = one(table("tls", 'host = "a"\nexpires_within = "48h"\ndown_within = 1')).look

    assert (found.interval, found.timeout, found.retry_interval) == (300, 7, 0.5)
    assert isinstance(tls, TlsLook)
    assert (tls.expires_within, tls.down_within) == (2, 1)


def test_defaults_hold_for_every_probe_that_says_nothing_else() -> None:
    found = read('[defaults]\ninterval = "1m"\nfailures = 5\nstarts_chain = false\n' + SHOP + "failures = 1\n")

    assert (found.probes[0].interval, found.probes[0].failures, found.probes[0].starts_chain) == (60, 1, False)
    assert found.defaults == Defaults(interval=60, failures=5, starts_chain=False)


def test_a_short_interval_shortens_what_nobody_set() -> None:
    found = one(SHOP + "interval = 2\n")

    assert (found.interval, found.retry_interval, found.timeout) == (2, 2, 2)
    assert read("[defaults]\ninterval = 2\n" + SHOP).probes[0].timeout == 2


def test_a_heartbeat_has_a_grace_time_instead_of_counts() -> None:
    found = one(table("heartbeat", 'every = "10s"\ngrace = "1m"'))

    assert found.look == HeartbeatLook(every=10, grace=60)
    assert (found.interval, found.failures, found.successes) == (10, 1, 1)


# --- how a mistake is told ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("[[probe]\n", 1, "this is not TOML"),
        ("x = 1", 1, "the key 'x' is not known here: known are defaults, probe"),
        ("[[probes]]\n", 1, "the key 'probes' is not known here: did you mean 'probe'?"),
        ("[probe]\nname = 'x'", 1, "each probe is a table of its own: write [[probe]]"),
        ("defaults = 3", 1, "defaults is a table: write [defaults]"),
        ("[defaults]\nintervall = 3", 2, "the key 'intervall' is not known here: did you mean 'interval'?"),
        ("[defaults]\ninterval = '1s'\ntimeout = 5", 3, "timeout: a look may not take longer than the interval"),
        ("[[probe]]\nname = 'x'", 1, "the probe 'x': 'kind' is missing: add one of http, tcp"),
        ("[[probe]]\nname = 'x'\nkind = 'htp'", 3, "'htp' is not a kind of probe: did you mean 'http'?"),
        ("[[probe]]\nkind = 'icmp'\nhost = 'a'", 1, "'name' is missing: add it"),
        (table("tcp", 'host = "a"'), 1, "the probe 'x': 'port' is missing: add it"),
        (table("tcp", 'host = "a"\nport = "80"'), 5, "port: this is a text in quotes: write a whole number"),
        (table("tcp", 'host = "a"\nport = true'), 5, "port: this is true or false: write a whole number"),
        (table("tcp", 'host = "a"\nport = 70000'), 5, "there is no port 70000: ports go from 1 to 65535"),
        (table("tcp", 'host = "a:80"\nport = 80'), 4, "is not a plain address"),
        (table("tcp", 'host = "http://a"\nport = 80'), 4, "is not a host: write its name or address alone"),
        (table("tcp", 'host = "a"\nport = 1\nurl = "x"'), 6, "the key 'url' is not known here"),
        (table("tcp", 'host = "a"\nport = 1\ninterval = "soon"'), 6, "'soon' is not a duration: write '30s'"),
        (table("tcp", 'host = "a"\nport = 1\ninterval = inf'), 6, "inf is not a duration"),
        (table("tcp", 'host = "a"\nport = 1\ninterval = 0'), 6, "interval: 0 s cannot be kept: write 1 s to 1 day"),
        (table("tcp", 'host = "a"\nport = 1\ntimeout = "31s"'), 6, "longer than the interval of 30 s"),
        (table("tcp", 'host = "a"\nport = 1\nretry_interval = 60'), 6, "no retry within the interval of 30 s"),
        (table("tcp", 'host = "a"\nport = 1\nfailures = 0'), 6, "failures: 0 in a row cannot be: write 1 to 100"),
        (table("tcp", 'host = "a"\nport = 1\ndepends_on = "db"'), 6, "this is a text in quotes: write a list"),
        (table("tcp", 'host = "a"\nport = 1\nservice = "a\\nb"'), 6, "is not a name of a service"),
        (table("icmp", 'host = "a"', name="a b"), 2, "'a b' cannot be a name: write letters, digits"),
        (table("icmp", 'host = "a"') + table("icmp", 'host = "b"', name="X"), 6, "taken by the probe in line 1"),
        (table("http", 'url = "shop/health"'), 4, "a URL begins with http:// or https://: write it out"),
        (table("http", 'url = "ftp://a/"'), 4, "a URL begins with http:// or https://"),
        (table("http", 'url = "http://a/"\nmethod = "POST"'), 5, "'POST' could change something: write GET or HEAD"),
        (table("http", 'url = "http://a/"\nmethod = "HEAD"\ntext = "ok"'), 5, "an answer to HEAD has no body"),
        (table("http", 'url = "http://a/"\nstatus = [99]'), 5, "a status of HTTP is a number from 100 to 599"),
        (table("http", 'url = "http://a/"\nslower_than = 10'), 5, "no answer is awaited for longer than the timeout"),
        (table("http", 'url = "http://a/"\n[probe.json]\nstatus = "ok"'), 5, "the keys are JSON pointers"),
        (table("tls", 'host = "a"\ndown_within = 20'), 5, "it would be down before it is degraded"),
        (table("dns", 'query = "a"\nrecord = "ANY"'), 5, "'ANY' is not known: known are A, AAAA"),
        (table("dns", 'query = "a"\nserver = "1.1.1.1:dns"'), 5, "write ADDRESS or ADDRESS:PORT"),
        (table("icmp", 'host = "a"\nlost = nan'), 5, "lost: nan is not a number: write one"),
        (table("icmp", 'host = "a"\ncount = 100'), 5, "count: send 1 to 20 requests"),
        (table("prometheus", 'url = "http://p/"\nexpression = "up"'), 5, "nothing is compared: add 'above' or 'below'"),
        (table("prometheus", 'url = "http://p/"\nexpression = "up"\nabove = 1\nbelow = 2'), 7, "every value would be"),
        (table("prometheus", 'url = "http://p/"\nexpression = "up"\nabove = 1\nabsent = "no"'), 7, "absent: invalid"),
        (table("docker", 'container = "a"\nsocket = "run"'), 5, "write the absolute path of the engine's socket"),
        (table("kubernetes", 'workload = "web"'), 4, "write deployment/NAME, statefulset/NAME or daemonset/NAME"),
        (table("command", 'command = " "'), 4, "write the command that looks"),
        (table("heartbeat", "every = 0"), 4, "every: write 1 s to 366 days"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_what_to_write_instead(text: str, line: int, sentence: str) -> None:
    found = fault(text)

    assert sentence in found[1]
    assert found[0] == line


@pytest.mark.parametrize(
    "more",
    [
        'url = "http://169.254.169.254/latest/meta-data/"',
        'url = "http://[fe80::1]/"',
        'url = "http://metadata.google.internal/"',
        'url = "http://0xA9FEA9FE/"',
        'url = "http://169.254.169.254.nip.io/"',
        'url = "http://docker:2375/containers/web/json"',
        'url = "http://255.255.255.255/"',
        'url = "http://0.0.0.0:8080/"',
    ],
)
def test_what_is_never_asked_is_asked_by_no_probe(more: str) -> None:
    assert fault(table("http", more))[0] == 4


@pytest.mark.parametrize("kind", ["tcp", "tls", "icmp", "postgres", "mysql", "redis"])
@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "metadata", "224.0.0.1", "", " a", "a b"])
def test_hosts_that_are_never_asked_are_asked_by_no_kind(kind: str, host: str) -> None:
    port = "port = 80" if kind == "tcp" else ""
    assert fault(table(kind, f'host = "{host}"\n{port}'))[0] == 4


def test_a_command_is_held_against_the_policy_by_whoever_knows_it() -> None:
    def refuse(command: str) -> str | None:
        return f"no rule allows {command}" if command.startswith("rm") else None

    text = table("command", 'command = "df"') + table("command", 'command = "rm -r /"', name="y")
    with pytest.raises(TomlFault, match="tier 1's policy does not allow it: no rule allows rm -r /") as raised:
        read_probes(text, file="probes.toml", refuse_command=refuse)
    assert raised.value.line == 8


@pytest.mark.parametrize("size", [5001])
def test_a_file_has_its_bounds(size: int) -> None:
    assert "at most 5000 probes" in fault(f"probe = [{'{},' * size}]")[1]
    assert "nested too deeply" in fault("x = " + "[" * 100_000)[1]


# --- secrets ------------------------------------------------------------------------------------------


HEADERS = table("http", 'url = "https://a/"\n[probe.headers]\nAuthorization = "Bearer ${SHOP_KEY}"\nX-Who = "me"')


def test_a_header_refers_to_the_environment_and_stays_a_reference() -> None:
    look = one(HEADERS).look

    assert isinstance(look, HttpLook)
    assert look.headers["Authorization"] == "Bearer ${SHOP_KEY}"
    assert referred(look) == ("SHOP_KEY",)
    assert headers_of(look, {"SHOP_KEY": "s3cr3t"}) == {"Authorization": "Bearer s3cr3t", "X-Who": "me"}


@pytest.mark.parametrize(("environ", "wrong"), [({}, "is not set"), ({"SHOP_KEY": "a\nb"}, "a control character")])
def test_a_reference_that_cannot_be_resolved_names_the_variable_and_not_its_value(
    environ: dict[str, str], wrong: str
) -> None:
    look = one(HEADERS).look
    assert isinstance(look, HttpLook)
    with pytest.raises(ConfigurationError, match=wrong) as raised:
        headers_of(look, environ)
    assert "SHOP_KEY" in str(raised.value)
    assert "a\nb" not in str(raised.value)


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ('Authorization = "Bearer s3cr3t"', "Authorization looks like a secret: put it in the environment"),
        ('X-Api-Key = "s3cr3t"', "X-Api-Key looks like a secret"),
        ('X = "${}s3cr3t"', "a reference to the environment is written ${NAME}"),
        ('X = "a\\r\\nHost: s3cr3t"', "holds a control character"),
        ('"X Y" = "s3cr3t"', "is not the name of a header"),
    ],
)
def test_a_secret_in_the_file_is_refused_without_being_repeated(header: str, sentence: str) -> None:
    found = fault(table("http", f'url = "https://a/"\n[probe.headers]\n{header}'))[1]

    assert sentence in found
    assert "s3cr3t" not in found


def test_a_password_in_a_url_is_refused_without_being_repeated() -> None:
    found = fault(table("http", 'url = "https://me:s3cr3t@a/"'))[1]

    assert "a URL holds no credentials" in found
    assert "s3cr3t" not in found


# --- the estate ---------------------------------------------------------------------------------------


def test_a_service_that_no_manifest_knows_is_a_warning() -> None:
    known = estate(service("shop"), service("db"))
    probes = [probe("shop-http", service="Shop", depends_on=("db", "cash")), probe("lonely")]

    (sentence,) = unknown_services(probes, known)
    assert sentence == (
        "probes.toml:1: the probe 'shop-http' names the service 'cash', which no manifest describes: "
        "add it to a manifest, or correct the name"
    )
    typo = [probe("x", service="shopp")]
    assert "did you mean 'shop'?" in unknown_services(typo, known)[0]
    assert unknown_services(typo, replace(known, other_names={"Shopp": "shop"})) == ()
    assert unknown_services([probe("lonely")], Estate()) == ()


def test_what_no_series_means_can_be_chosen() -> None:
    look = one(table("prometheus", LEAST["prometheus"] + '\nabsent = "down"')).look

    assert getattr(look, "absent", None) is ProbeState.DOWN
