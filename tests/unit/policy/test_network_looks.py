"""Looks at the network: run by the daemon on this machine, in their own place elsewhere, and never a silent nothing."""

from __future__ import annotations

import pytest

from claudeops.domain.calls import Verdict, VerdictKind
from claudeops.policy.programs.network import PROGRAMS
from claudeops.policy.remote import script
from claudeops.policy.tiers import PolicyFault, parse_policy, tier_policy
from claudeops.structs import replace
from support.policy_cases import DEFAULT_TEXT, POLICY, SCOPE, judged

HERE = replace(SCOPE, looks=dict.fromkeys(("git", *PROGRAMS), ""))
BY_DAEMON = (
    ("ss -tlnp", "ss -n -t -l -p"),
    ("/usr/bin/ss -tn state established '( dport = :443 )'", "ss -n -t -- state established ( dport = :443 )"),
    ("netstat -rn", "netstat -n -r"),
    ("ip -br addr", "ip -brief addr"),
    ("ip route get 10.0.0.1", "ip route get 10.0.0.1"),
    ("ifconfig eth0", "ifconfig eth0"),
    ("hostname -I", "hostname -I"),
    ("ping -c3 web1", "ping -c 3 -- web1"),
    ("traceroute web1", "traceroute -n -- web1"),
    ("mtr -r -c 5 web1", "mtr -r -n -c 5 -- web1"),
    ("nc -z -w 3 web1 443", "nc -z -w 3 -- web1 443"),
)


def text(verdict: Verdict) -> str:
    """Return what the session runs."""
    return str((verdict.ran or {})["command"])


@pytest.mark.parametrize(("given", "runs"), BY_DAEMON)
def test_a_look_at_the_network_runs_by_the_daemon_in_its_one_form(given: str, runs: str) -> None:
    verdict = judged(f"{given} | head -n 3", 1, HERE)
    assert [" ".join((look.program, *look.arguments)) for look in verdict.looks_run] == [runs]
    assert verdict.looks_run[0].where is None
    assert text(verdict).startswith("/look 'toolu_1-1' |") or "'/look' 'toolu_1-1'" in text(verdict)


@pytest.mark.parametrize("given", [given for given, _ in BY_DAEMON])
def test_where_the_daemon_runs_none_the_session_runs_it_itself(given: str) -> None:
    verdict = judged(given, 1)
    assert (verdict.kind, verdict.looks_run) == (VerdictKind.ALLOW, ())
    assert given.split(maxsplit=1)[0].rpartition("/")[2] in text(verdict)


@pytest.mark.parametrize("around", ["ssh web1 {}", "docker exec web {}", "kubectl exec web -- {}"])
@pytest.mark.parametrize("given", ["ss -tln", "ip addr", "ping -c 1 web1", "fuser 443/tcp", "lsof -i :443"])
def test_elsewhere_it_runs_there(around: str, given: str) -> None:
    verdict = judged(around.format(given), 1, HERE)
    assert (verdict.kind, verdict.looks_run) == (VerdictKind.ALLOW, ()), verdict.reason


def test_its_forms_stay_among_those_that_a_key_may_run_on_other_hosts() -> None:
    forms = script(tier_policy(POLICY, 1))
    assert all(f"\n{program} {program}" in forms for program in ("ip", "ping", "traceroute"))


def test_what_the_daemon_decides_by_its_rules_is_as_ever() -> None:
    assert "give a count" in judged("ping web1", 1, HERE).reason
    assert judged("ip link set lo down", 1, HERE).kind is VerdictKind.DENY
    assert judged("ip -batch /work/s1/x", 1, HERE).kind is VerdictKind.DENY
    assert judged("ping -c 1 169.254.169.254", 1, HERE).kind is VerdictKind.DENY


def test_as_another_user_it_is_refused_because_that_could_not_work() -> None:
    verdict = judged("sudo ss -tlnp", 1, HERE)
    assert (verdict.kind, "leave sudo out" in verdict.reason) == (VerdictKind.DENY, True)


def test_a_program_that_does_not_work_is_refused_with_the_reason_and_no_hint() -> None:
    scope = replace(HERE, looks={**HERE.looks, "ping": "no echo requests here: set a thing"})
    assert judged("ping -c 1 web1", 1, scope).reason == "ping: no echo requests here: set a thing"
    assert judged("ss -tln", 1, scope).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("given", ["echo web1 | xargs ping -c 1", 'ping -c 1 "$(hostname)"', "ip addr show $(cat /x)"])
def test_what_is_not_known_before_it_runs_is_refused(given: str) -> None:
    assert judged(given, 1, HERE).kind is VerdictKind.DENY


def test_what_xargs_adds_does_not_get_lost_on_the_way() -> None:
    own = 'extends = "default"\n[[commands]]\nname = "ip"\nlook = "network"\narguments = "name"\n'
    tier = tier_policy(parse_policy(own, default=DEFAULT_TEXT), 1)
    given = "docker ps --format '{{.Names}}' | xargs -n 1 ip"
    assert judged(given, tier).kind is VerdictKind.ALLOW
    assert "not known before it runs" in judged(given, tier, HERE).reason


def test_each_round_of_a_loop_is_a_look_of_its_own() -> None:
    verdict = judged("for host in web1 web2; do timeout 5 ping -c 1 $host; done", 1, HERE)
    assert [look.arguments[-1] for look in verdict.looks_run] == ["web1", "web2"]
    assert [look.id for look in verdict.looks_run] == ["toolu_1-1", "toolu_1-2"]


@pytest.mark.parametrize("given", ["lsof -i", "lsof -i :443", "lsof -nP -iTCP -sTCP:LISTEN", "fuser -v 443/tcp"])
def test_an_empty_list_that_means_not_seen_is_a_refusal_that_names_the_way(given: str) -> None:
    verdict = judged(given, 1, HERE)
    assert (verdict.kind, "ss -tuln" in verdict.reason) == (VerdictKind.DENY, True)
    assert judged(given, 1).kind is VerdictKind.ALLOW


@pytest.mark.parametrize("given", ["lsof +L1", "lsof -p 1", "lsof /var/log/syslog", "fuser -v -m /var/log"])
def test_looks_at_files_stay_as_they_are(given: str) -> None:
    verdict = judged(given, 1, HERE)
    assert (verdict.kind, verdict.looks_run) == (VerdictKind.ALLOW, ()), verdict.reason


def test_a_rule_cannot_have_the_daemon_run_what_it_does_not_know() -> None:
    with pytest.raises(PolicyFault, match="the daemon runs no nmap by it"):
        parse_policy('extends = "default"\n[[commands]]\nname = "nmap"\nlook = "network"\n', default=DEFAULT_TEXT)
