"""Holes that were found by reading the gate against itself; each let a secret, a host or an action through."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import VerdictKind
from claudeops.policy.tiers import explain, tier_policy
from support.policy_cases import POLICY, SCOPE, bash, judged


@pytest.mark.parametrize(
    "command",
    [
        # a value of another test was taken for the name that is searched for
        "find /srv/x -printf -name -type f -exec cat {} +",
        "find /srv/x -path -name -readable -exec cat {} +",
        "find /srv/x -regex -name -mount -exec grep -r '' {} +",
        # find's own matching drops a backslash
        "find /srv/x -name 'id_rs\\a' -exec cat {} +",
        "find /srv/x -name '.en\\v' -exec cat {} +",
        # jq 1.6 reads a dollar and a name as two words
        "jq -n '$ ENV'",
        "jq -n '$\nENV'",
        "docker exec web jq -n '$ ENV'",
        # awk reads a digit and a letter as two words
        "awk 'BEGIN{x=1system(\"id\")}'",
        "awk 'BEGIN{1getline y<\"/etc/shadow\"}'",
        "awk 'BEGIN{print 1ENVIRON[\"X\"]}'",
        "awk 'BEGIN{x=0xasystem(\"id\")}'",
        "awk 'BEGIN{0x1egetline y<\"/etc/shadow\"}'",
        "ssh web1 \"awk 'BEGIN{print 0xaENVIRON[1]}'\"",
        # a length of one's own makes a second request of the first one's end; curl sends ``Host;x`` as ``Host:x``
        "curl -s -H 'Content-Length: 104' -H 'X-A: POST /restart HTTP/1.0' http://web.example/a http://web.example/b",
        "curl -s -H 'transfer-encoding: chunked' http://web.example/",
        "curl -s -H 'X-HTTP-Method-Override: DELETE' http://web.example/",
        "curl -s -H 'Host;evil2.example' http://web.example/",
        "ssh web1 curl -s -H 'Host;169.254.169.254' http://localhost/",
        "wget -q -O - --header='Content-Length: 104' http://web.example/a",
        # elsewhere it is not known what is a directory, whose files diff prints
        "ssh web1 diff /srv/web /srv/web2",
        "docker exec web diff /app /app.old",
        # a first word that is a file's name is a file to one of the programs called yq
        "cd /etc && yq -p props ddclient.conf",
        "cd /etc && yq sudoers",
        "ssh web1 'cd /etc && yq sudoers'",
        # zsh computes it
        "ssh web1 \"exit 'path[\\$(reboot)]'\"",
        # whole disks and memories, under names that say nothing
        "sudo strings /swapfile",
        "sudo strings /var/lib/libvirt/images/web.raw",
        "git -C /repos/app for-each-ref --format='%(raw)'",
        "git -C /repos/app tag -l --format='%(*raw)'",
        # the shell went elsewhere, and the judge did not follow
        "command cd /srv; docker compose ps",
        "builtin cd /srv; df",
        "time cd /srv; df",
        "env cd /srv; df",
        # the configuration names further files
        "promtool check config /repos/prometheus.yml",
        # the whole object, with its environment
        "docker inspect --format json web",
        "docker service inspect --format pretty web",
        "ssh web1 docker inspect --format json web",
        "kubectl get services.serving.knative.dev web -o yaml",
        # any request, to any host of the estate
        "printf 'POST / HTTP/1.1\\r\\n' | openssl s_client -connect web.example:2376",
        "openssl s_client -connect web.example:443 <<< 'DELETE / HTTP/1.1'",
        "cat /etc/hosts | openssl s_client -connect web.example:443",
    ],
)
def test_what_went_through_is_denied(command: str) -> None:
    assert judged(command, 1).kind is VerdictKind.DENY


@pytest.mark.parametrize(
    "command",
    [
        "openssl s_client -connect web.example:443 </dev/null",
        "echo | openssl s_client -connect web.example:443",
        "ssh web1 diff /etc/hosts.conf /srv/x/hosts.conf",
        "ssh web1 'cat /srv/x/a | diff - /srv/x/b.txt'",
        "yq '.a' /srv/x/values.yaml",
        "ssh web1 'df || exit 1'",
        "curl -s -H 'Accept: application/json' -H 'X-Request-Id: 1' http://web.example/",
        "curl -s -H 'Host: web.example' http://localhost/",
        "awk '/filesystem/ {print $1}' /var/log/syslog",
        "echo Q | openssl s_client -connect web.example:443",
        "find /repos -name README.md -exec cat {} +",
        "awk '/systemd/ {print $1}' /var/log/syslog",
        "find / -size +500M -exec ls -lh {} +",
        "ip link show up",
    ],
)
def test_what_was_meant_stays_allowed(command: str) -> None:
    assert judged(command, 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize(
    "command", ["docker restart web; ssh web1 'ssh web1 systemctl restart web'", "ssh 127.0.0.2 systemctl restart web"]
)
def test_a_way_back_to_the_same_host_makes_no_other_service(command: str) -> None:
    services = {action.service for action in judged(command, 2).actions}
    assert services <= {"web", "web1/web"}
    assert services


@pytest.mark.parametrize(
    "command",
    [
        # several files in one word: one of them the session's own
        "kubectl apply -f /repos/app/k8s/a.yaml,/work/s1/x.yaml",
        "kubectl apply -f /repos/app/k8s/a.yaml,-",
        "helm upgrade web /repos/app/chart -f /repos/app/v.yaml,/work/s1/x.yaml",
        "docker stack deploy -c /repos/app/a.yml,/work/s1/x.yml media",
        "ansible-playbook -i /repos/app/inv,evil.example /repos/app/site.yml",
        # another name for what counts elsewhere
        "docker-compose -p me.dia restart web",
        "docker compose -p claudeops restart web",
        "kubectl -n claudeops rollout restart deploy/web",
        "docker restart k8s_web_web-7d4b9c8f6-x7k2p_media_1_0",
    ],
)
def test_an_action_on_what_it_does_not_say_is_denied(command: str) -> None:
    assert judged(command, 3).kind is VerdictKind.DENY


@pytest.mark.parametrize(
    "unit",
    [
        "snap.docker.dockerd",
        "k0scontroller",
        "rke2-server",
        "crio",
        "dropbear",
        "dhcpcd",
        "ifup@eth0",
        "plymouth-reboot",
        "apt-daily-upgrade",
        "packagekit-offline-update",
        "initrd-switch-root",
        "multipathd",
        "hostapd",
        "rc-local",
        "claude-ops",
    ],
)
def test_what_carries_everything_is_not_restarted_under_another_name(unit: str) -> None:
    assert judged(f"systemctl restart {unit}", 3).kind is VerdictKind.DENY


EXCLUDED = " ".join(
    f"--exclude='*{word}*' --exclude-dir='*{word}*'"
    for word in ("secret", "pass", "cred", "key", "token", "vault", "auth", "kubeconfig")
)


def test_what_a_search_is_for_stands_before_what_it_leaves_out() -> None:
    """GNU grep searches whatever no pattern fits unless the first one includes, and the last one that fits decides."""
    command = f"grep -r {EXCLUDED} --include='*.yml' x /srv/x"
    runs = explain(bash(command), tier=tier_policy(POLICY, 1), scope=SCOPE).runs
    assert 0 < runs.index("--include=") < runs.index("--exclude=")


@pytest.mark.parametrize("pattern", ["*.yaml", "[d]b.yaml", "d?.yaml", "{db,web}.yaml", "\\db.yaml"])
def test_a_pattern_that_kubectl_expands_is_no_file(pattern: str) -> None:
    assert judged(f"kubectl apply -f '/repos/app/{pattern}'", 3).kind is VerdictKind.DENY


@pytest.mark.parametrize(
    "command", ["cat /srv/web/.env; echo '\u200b'", "docker restart db\necho 'x", "kubectl get {secrets,pods}"]
)
def test_a_spelling_makes_no_question_of_a_refusal(command: str) -> None:
    assert judged(command, 3).kind is VerdictKind.DENY


def test_find_opens_no_link_whatever_its_tests_say() -> None:
    for tests in ("! -type f", "-type d -o -not -type f"):
        runs = explain(bash(f"find /var/log {tests} -exec cat {{}} +"), tier=tier_policy(POLICY, 1), scope=SCOPE).runs
        assert "'-type' 'f' '-type' 'f' '-exec'" in runs


def test_fish_reads_what_is_sent_to_it_as_we_do() -> None:
    """In fish a backslash escapes within single quotes."""
    runs = explain(bash("ssh web1 \"echo 'a\\\\' '; reboot; #'\""), tier=tier_policy(POLICY, 1), scope=SCOPE).runs
    sent = runs[runs.index("'web1' '") + len("'web1' '") :].rstrip().removesuffix("'").replace("'\\''", "'")
    assert sent == "/usr/bin/env -- 'echo' 'a'\\\\'' '; reboot; #'"
