"""The script for another host runs what the gate writes for it, and nothing else."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.remote import script
from claudeops.policy.tiers import explain, tier_policy
from support.policy_cases import POLICY, SCOPE, bash, rows
from support.waiting import PATIENCE_SECONDS

LOOKS = [row for row in rows("harmless.txt") if row.startswith("ssh host")]


@cache
def text() -> str:
    """Return the script of tier 1, which says that it would run the text instead of running it."""
    written = script(tier_policy(POLICY, 1))
    assert 'exec /bin/sh -c "$text"' in written
    return written.replace('exec /bin/sh -c "$text"', "echo runs")


def answer(command: str, directory: Path) -> str:
    file = directory / "script"
    file.write_text(text())
    done = subprocess.run(
        ["/bin/sh", str(file)],
        env={"SSH_ORIGINAL_COMMAND": command, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout.strip() or done.stderr.strip()


def remote_text(command: str) -> str:
    """Return what the other host is given for a command of the table: the last word of what runs."""
    judged = explain(bash(command), tier=tier_policy(POLICY, 1), scope=SCOPE)
    assert judged.verdict.kind is VerdictKind.ALLOW, judged.verdict.reason
    inside = judged.runs[judged.runs.index("'host' '") + len("'host' '") :].rstrip().removesuffix("'")
    return inside.replace("'\\''", "'")


ORDINARY = (
    "ssh host 'df -h'",
    "ssh host 'cd /srv/media && docker compose ps --format json | head -3'",
    "ssh host 'sudo journalctl -u docker -n 50 --no-pager | grep -i error'",
    "ssh host 'docker logs --tail 50 --since 1h sonarr 2>&1 | tail -20'",
    "ssh host 'if systemctl is-active --quiet nginx; then echo up; else echo down; fi'",
    "ssh host 'ls -lt /srv/backups; uptime; free -m'",
    "ssh host 'find /var/log -name \"*.log\" -mtime -1'",
    "ssh host 'ps aux --sort=-%mem | head'",
    "ssh host 'test -f /etc/hosts && cat /etc/hosts'",
    "ssh host 'timeout 5 podman ps -a 2>/dev/null || docker ps -a'",
    "ssh host 'curl -s -o /dev/null -w \"%{http_code}\" http://localhost:8080/health'",
    "ssh host 'docker inspect --format \"{{.State.Status}} {{.State.Health.Status}}\" web'",
    "ssh host 'kubectl get pods -n media -o wide'",
    "ssh host 'redis-cli ping'",
    "ssh host 'zpool status -x; zfs list'",
    "ssh host '[ -f /etc/hosts ] && cat /etc/hosts'",
    "ssh host 'grep -e \"a[.]b\\\\\" /var/log/syslog'",
    "ssh host 'tar -tf /deploy/site.tar'",
)


@pytest.mark.parametrize("command", ORDINARY)
def test_what_the_gate_writes_for_another_host_is_run_there(command: str, tmp_path: Path) -> None:
    assert answer(remote_text(command), tmp_path) == "runs"


HOSTILE = (
    "",
    "id",
    "df -h",
    "/bin/sh",
    "/usr/bin/env -- 'rm' '-rf' '/srv'",
    "/usr/bin/env -- 'cat' '--' '/etc/shadow'",
    "/usr/bin/env -- 'cat' '--' '/etc/SHADOW.bak'",
    "/usr/bin/env -- 'cat' '--' '/srv/../etc/shadow'",
    "/usr/bin/env -- 'cat' '--' '/home/me/.ssh/id_ed25519'",
    "/usr/bin/env -- 'cat' '--' '/proc/self/environ'",
    "/usr/bin/env -- 'ps' '-e' '-o' 'pid,environ'",
    "/usr/bin/env -- 'df' '-h'; reboot",
    "/usr/bin/env -- 'df' '-h'\nreboot",
    "/usr/bin/env -- 'df' '-h' & reboot",
    "/usr/bin/env -- 'df' '-h' > '/etc/cron.d/x'",
    "/usr/bin/env -- 'df' '-h' >'/etc/cron.d/x'",
    "/usr/bin/env -- 'df' \"$(reboot)\"",
    "/usr/bin/env -- 'df' `reboot`",
    "/usr/bin/env -- 'df' $x",
    "/usr/bin/env -- 'df' '-h' 'x",
    "test '-v' 'a[$(reboot)]'",
    "[ '-v' 'a[$(reboot)]' ]",
    "printf '-v' 'a[$(reboot)]' 'x'",
    "eval 'reboot'",
    "x=1 /usr/bin/env -- 'df'",
    "/usr/bin/env 'LD_PRELOAD=/tmp/x' 'df'",
    "/usr/bin/env -- 'docker' 'restart' 'web'",
    "/usr/bin/env -- 'docker' 'exec' 'web' 'sh' '-c' 'reboot'",
    "/usr/bin/env -- 'find' '-P' '/srv' '-exec' 'rm' '{}' '+'",
    "/usr/bin/env -- 'find' '-P' '/srv' '-delete'",
    "sudo -s",
    "sudo '-u' 'root' '--' '/bin/sh'",
    "! reboot",
    "{ reboot; }",
    "( reboot )",
    "if reboot; then /usr/bin/env -- 'df'; fi",
    "while /usr/bin/env -- 'df'; do reboot; done",
    "/usr/bin/env -- 'df' # x",
    "/usr/bin/env -- 'git' 'log'",
    "/opt/df '-h'",
    "/usr/bin/env -- 'awk' '--' 'BEGIN{system(\"id\")}'",
    "/usr/bin/env sh s uptime",
    "/usr/bin/env ssh 10.0.0.5 echo 'x; reboot'",
    "sudo sh uptime",
    "sudo '--' 'sh' 'uptime'",
    "/usr/bin/env -- 'curl' '-q' '-o' '/home/x/written' '--' 'http://localhost/'",
    "/usr/bin/env -- 'curl' '-q' '-w' '@/etc/hosts' '--' 'http://localhost/'",
    "/usr/bin/env -- 'curl' '-q' '-w' '%output{/tmp/x}' '--' 'http://localhost/'",
    "/usr/bin/env -- 'curl' '-q' '-H' '@/etc/hosts' '--' 'http://localhost/'",
    "/usr/bin/env -- 'curl' '-q' '-s' '--' 'http://elsewhere.example/?read'",
    "/usr/bin/env -- 'cat' '--' '/var//lib/docker/x'",
    "/usr/bin/env -- 'cat' '--' '//etc/kubernetes/x.yaml'",
    "/usr/bin/env -- 'cat' '--' '/etc/./kubernetes/x.yaml'",
    "/usr/bin/env -- 'grep' '-r' '-e' 'x' '--' '/'",
    "/usr/bin/env -- 'docker' 'inspect' '--format={{.Config.Env}}' '--' 'web'",
    "/usr/bin/env -- 'docker' 'inspect' '--format={{json .}}' '--' 'web'",
    "/usr/bin/env -- 'kubectl' 'get' '--' 'secrets'",
    "/usr/bin/env -- 'kubectl' 'get' '--output=yaml' '--' 'pods'",
    "/usr/bin/env -- 'systemctl' 'show' '--property=Environment' '--' 'web'",
    "/usr/bin/env -- 'jq' '-n' '$ ENV'",
    "/usr/bin/env -- 'echo' 'x' >&1s",
    "/usr/bin/env -- 'echo' 'x' >'/dev/null's",
    "/usr/bin/env -- 'echo' 'x' >'/dev/null'/s",
    "{ /usr/bin/env -- 'uptime'; }/bin/uptime",
    # without the option that makes it harmless
    "/usr/bin/env -- 'echo' '* * * * * id' | /usr/bin/env -- 'crontab'",
    "/usr/bin/env -- 'kill' '1234'",
    "/usr/bin/env -- 'logrotate' '--' '/etc/logrotate.conf'",
    "/usr/bin/env -- 'nginx'",
    "/usr/bin/env -- 'httpd'",
    "/usr/bin/env -- 'docker' 'inspect' '--' 'web'",
    "/usr/bin/env -- 'docker' 'compose' 'config'",
    "/usr/bin/env -- 'systemctl' 'show' '--' 'web'",
    "/usr/bin/env -- 'cat' '--' '/srv/x' | /usr/bin/env -- 'nc' '--' 'host' '443'",
    "/usr/bin/env -- 'wget' '--no-config' '-q' '--' 'http://web/x'",
    "/usr/bin/env -- 'gzip' '--' '/srv/x'",
    "/usr/bin/env -- 'gzip' '-q' '--' '/srv/x'",
    "/usr/bin/env -- 'xz' '-d' '--' '/srv/x'",
    "/usr/bin/env -- 'ping' '--' 'host'",
    "/usr/bin/env -- 'docker' 'stats'",
    # wider than the rule
    "/usr/bin/env -- 'redis-cli' 'FLUSHALL'",
    "/usr/bin/env -- 'redis-cli' '--eval' '/tmp/x.lua'",
    "/usr/bin/env -- 'redis-cli' 'GET' 'session'",
    "/usr/bin/env -- 'curl' '-q' '-s' '--' 'http://134744072/'",
    "/usr/bin/env -- 'curl' '-q' '-s' '--' 'http://0x08080808/'",
    "/usr/bin/env -- 'kubectl' 'get' '--output' 'yaml' '--' 'pods'",
    "/usr/bin/env -- 'kubectl' 'get' '--output=custom-columns=N:.spec' '--' 'pods'",
    "/usr/bin/env -- 'kubectl' '--namespace=x' 'describe' '--' 'pods'",
    "/usr/bin/env -- 'kubectl' 'get' '--raw=/api/v1/pods'",
    "/usr/bin/env -- 'cat' '--' '/dev/sda'",
    "/usr/bin/env -- 'cat' '--' '/dev/mem'",
    "/usr/bin/env -- 'cat' '--' '/etc/ddclient.conf'",
    "/usr/bin/env -- 'cat' '--' '/etc/sssd/sssd.conf'",
    "/usr/bin/env -- 'diff' '--' '/srv/web' '/srv/web2'",
    "/usr/bin/env -- 'strings' '--' '/dev/sda1'",
    "/usr/bin/env -- 'tar' '--list' '--force-local' '--file=/dev/sda'",
    "/usr/bin/env -- 'date' '--' '010100002020'",
    "/usr/bin/env -- 'crictl' 'pods' '-o=json'",
    "/usr/bin/env -- 'jq' '-f' '/etc/hosts'",
    "/usr/bin/env -- 'jq' '-n' '-L/tmp'",
    "/usr/bin/env -- 'docker' 'compose' 'logs' '-f' 'web'",
    "/usr/bin/env -- 'sed' '--sandbox' '-n' '-e' 's/x/y/w /tmp/x' '--' '/etc/hosts'",
)


@pytest.mark.parametrize("command", HOSTILE)
def test_whatever_else_somebody_sends_is_refused(command: str, tmp_path: Path) -> None:
    assert answer(command, tmp_path).startswith("claudeops-commands: refused:")


ACTS = (
    "/usr/bin/env -- 'systemctl' 'start' '--' 'reboot.target'",
    "/usr/bin/env -- 'systemctl' 'restart' '--' 'docker'",
    "/usr/bin/env -- 'systemctl' 'restart' '--' 'sshd.service'",
    "/usr/bin/env -- 'systemctl' 'stop' '--' 'sshd'",
    "/usr/bin/env -- 'systemctl' 'restart' '--' 'getty@tty1'",
    "/usr/bin/env -- 'systemctl' 'restart' '--' 'user@0.service'",
    "/usr/bin/env -- 'service' 'docker' 'restart'",
    "/usr/bin/env -- 'docker' 'restart' '--' 'claudeops'",
    "/usr/bin/env -- 'docker' 'restart' '--' 'media-claudeops-1'",
    "/usr/bin/env -- 'kubectl' 'apply' '--filename=/tmp/x.yaml'",
    "/usr/bin/env -- 'docker' 'compose' '--file=/tmp/x.yml' 'up' '-d' 'web'",
)


@pytest.mark.parametrize("tier", [2, 3])
@pytest.mark.parametrize("command", ACTS)
def test_the_machine_and_the_supervisor_are_changed_at_no_tier(command: str, tier: int, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(script(tier_policy(POLICY, tier)).replace('exec /bin/sh -c "$text"', "echo runs"))
    environment = {"SSH_ORIGINAL_COMMAND": command, "PATH": "/nonexistent:/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", str(file)], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("claudeops-commands: refused:")


def test_a_restart_is_run_for_the_tier_that_may(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(script(tier_policy(POLICY, 2)).replace('exec /bin/sh -c "$text"', "echo runs"))
    environment = {"SSH_ORIGINAL_COMMAND": "/usr/bin/env -- 'docker' 'restart' '--' 'web'", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", str(file)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "runs\n"
