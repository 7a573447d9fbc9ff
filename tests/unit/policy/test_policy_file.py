"""The policy file: what an operator may write, what it then means, and how a mistake in it is told."""

from __future__ import annotations

import re
import tomllib

import pytest

from claudeops.domain.actions import ActionLimit
from claudeops.domain.calls import ToolCall, Verdict, VerdictKind
from claudeops.policy.policy_file import read_document, render
from claudeops.policy.tiers import Policy, PolicyFault, judge, parse_policy, tier_policy
from claudeops.structs import replace
from claudeops.text.toml_lines import key_lines, line_of
from support.policy_cases import DEFAULT_TEXT, POLICY, SCOPE, bash

ALLOW, DENY, ASK = VerdictKind.ALLOW, VerdictKind.DENY, VerdictKind.ASK


def extended(text: str) -> Policy:
    return parse_policy(f'extends = "default"\n{text}', default=DEFAULT_TEXT)


def verdict(policy: Policy, command: str, tier: int = 3) -> Verdict:
    return judge(bash(command), tier=tier_policy(policy, tier), scope=SCOPE)


def kind(policy: Policy, command: str, tier: int = 3) -> VerdictKind:
    return verdict(policy, command, tier).kind


# --- what is in force ---------------------------------------------------------------------------------


def test_the_default_says_what_the_contract_says() -> None:
    assert dict(POLICY.limits) == {
        "restart": ActionLimit(count=2, window_seconds=14400.0),
        "redeployment": ActionLimit(count=1, window_seconds=86400.0),
    }
    assert {number: rules.action_kinds for number, rules in POLICY.tiers.items()} == {
        1: (),
        2: ("restart",),
        3: ("restart", "redeployment"),
    }
    assert not {"Task", "Agent", "WebFetch"} & {tool for rules in POLICY.tiers.values() for tool in rules.tools}


def test_a_file_that_only_extends_changes_nothing() -> None:
    same = extended("")
    assert (same.tiers, same.actions, same.never) == (POLICY.tiers, POLICY.actions, POLICY.never)
    assert same.book.rules == POLICY.book.rules


def test_a_file_that_extends_nothing_stands_alone() -> None:
    alone = parse_policy('[tiers.1]\ntools = ["Bash"]\n[[commands]]\nname = "uptime"')
    assert kind(alone, "uptime", 1) is ALLOW
    assert kind(alone, "uptime -p", 1) is DENY
    assert kind(alone, "df -h", 1) is DENY
    assert kind(alone, "sudo uptime", 1) is DENY


def test_a_rule_of_the_operators_stands_before_the_defaults() -> None:
    policy = extended('[[commands]]\nname = "backupctl status"\noptions = "-v|--verbose"\narguments = "name?"')
    assert kind(policy, "backupctl status -v nightly", 1) is ALLOW
    assert kind(policy, "backupctl delete nightly") is DENY
    assert kind(policy, "docker ps", 1) is ALLOW


def test_a_command_is_taken_away() -> None:
    policy = extended('without = ["docker restart", "ssh", "helm"]')
    for command in ("docker restart web", "ssh host uptime", "helm list", "helm rollback web 3"):
        assert kind(policy, command) is DENY
    assert kind(policy, "docker container restart web") is ALLOW


def test_a_wrapper_may_need_a_higher_tier() -> None:
    policy = extended("[wrappers]\nssh = 2")
    assert "needs tier 2" in verdict(policy, "ssh host uptime", 1).reason
    assert kind(policy, "ssh host uptime", 2) is ALLOW


def test_a_further_kind_of_action_has_its_own_limit() -> None:
    policy = extended(
        '[tiers.3]\nactions = ["restart", "certificate"]\n[actions.certificate]\nlimit = 1\nwindow = "7d"\n'
        'verb = "renew the certificate of"\n[[commands]]\nname = "certbot renew"\ntier = 3\n'
        'options = "--cert-name=service"\nrequired = "--cert-name"\naction = "certificate"'
    )
    assert policy.limits["certificate"] == ActionLimit(count=1, window_seconds=7 * 86400.0)
    renewed = verdict(policy, "certbot renew --cert-name example.org")
    assert [(action.kind, action.service) for action in renewed.actions] == [("certificate", "example.org")]
    assert renewed.reason == "renew the certificate of example.org"
    assert kind(policy, "docker compose up -d web") is DENY  # redeployment is not among its actions any more


def test_what_is_out_of_scope_is_denied() -> None:
    policy = extended(
        '[tiers.3]\nhosts = ["web*", "10.0.0.0/8", "!web9"]\nurls = ["http*://*.internal/*"]\n'
        'services = ["*", "!db"]\nread = ["/var/log", "{workdir}"]'
    )
    for command, expected in (
        ("ssh web1 uptime", ALLOW), ("ssh web9 uptime", DENY), ("ssh mail uptime", DENY),
        ("ping -c 1 10.1.2.3", ALLOW), ("ping -c 1 11.1.2.3", DENY), ("nc -z 10.0.0.1 80", ALLOW),
        ("curl http://x.internal/health", ALLOW), ("curl http://example.org/", DENY),
        ("docker restart web", ALLOW), ("docker restart db", DENY), ("ssh web1 docker restart db", DENY),
        ("cat /var/log/syslog", ALLOW), ("cat /etc/hosts", DENY), ("cat /work/s1/x", ALLOW),
        ("cat hosts", ALLOW), ("cd /etc && cat hosts", DENY),
    ):  # fmt: skip
        assert kind(policy, command) is expected, command


def test_a_person_is_asked_where_the_file_says_so() -> None:
    policy = extended(
        '[tiers.3.ask]\ncommands = ["docker compose up"]\nactions = ["redeployment"]\nservices = ["db*"]\n'
        'tools = ["Write"]'
    )
    asked = verdict(policy, "cd /srv/media && sudo docker compose up -d web")
    assert (asked.kind, [action.service for action in asked.actions]) == (ASK, ["project:media/web"])
    assert kind(policy, "docker restart db-x") is ASK
    assert kind(policy, "helm rollback web 3") is ASK
    assert kind(policy, "docker restart web") is ALLOW
    assert kind(policy, "docker restart db-x; docker volume rm x") is DENY
    write = ToolCall(tool_use_id="t", tool_name="Write", input={"file_path": "/work/s1/x"})
    assert judge(write, tier=tier_policy(policy, 3), scope=SCOPE).kind is ASK


@pytest.mark.parametrize(
    ("text", "command", "needed", "reason"),
    [
        pytest.param(
            "[actions.redeployment]\napprovals = 2",
            "docker compose -f /srv/media/compose.yml up -d web",
            2,
            "redeployment of project:media/web needs 2 people's yes",
            id="a kind of action, which no tier need ask about",
        ),
        pytest.param(
            "[actions.restart]\napprovals = 1",
            "docker restart web",
            1,
            "restart of web needs a person's yes",
            id="one person at every tier",
        ),
        pytest.param(
            '[[commands]]\nname = "backupctl drop"\narguments = "name"\napprovals = 3',
            "ssh web1 sudo backupctl drop old",
            3,
            "backupctl drop needs 3 people's yes",
            id="a command, however it is wrapped",
        ),
        pytest.param(
            '[tiers.3.ask]\nservices = ["db"]\napprovals = 2',
            "docker restart db",
            2,
            "restart of db needs 2 people's yes",
            id="whatever a tier asks about",
        ),
        pytest.param(
            '[actions.restart]\napprovals = 2\n[tiers.3.ask]\nactions = ["restart"]\napprovals = 3',
            "docker restart db",
            3,
            "restart of db needs 3 people's yes",
            id="the highest number counts",
        ),
        pytest.param(
            "[actions.restart]\napprovals = 2",
            "docker restart web && kubectl rollout undo deploy/db",
            2,
            "restart of web needs 2 people's yes",
            id="beside what nobody is asked about",
        ),
        pytest.param(
            '[actions.redeployment]\napprovals = 2\n[tiers.3.ask]\nactions = ["restart"]',
            "docker restart web",
            1,
            "restart of web needs a person's yes",
            id="another kind",
        ),
    ],
)
def test_as_many_people_must_say_yes_as_the_file_says(text: str, command: str, needed: int, reason: str) -> None:
    asked = verdict(extended(text), command)

    assert (asked.kind, asked.needed, asked.reason) == (ASK, needed, reason)


def test_nobody_evades_the_second_person_by_a_call_that_cannot_be_understood() -> None:
    hidden = "python3 -c 'print(6*7)'"
    policy = extended("[actions.redeployment]\napprovals = 2")

    assert verdict(POLICY, hidden).needed == 1
    assert (verdict(policy, hidden).kind, verdict(policy, hidden).needed) == (ASK, 2)
    assert verdict(policy, hidden).reason.endswith("; it needs 2 people's yes")
    assert verdict(extended("[tiers.3.ask]\napprovals = 2"), hidden).needed == 2


def test_what_is_denied_stays_denied_however_many_people_would_say_yes() -> None:
    policy = extended("[actions.restart]\napprovals = 2")

    assert kind(policy, "docker restart web", 1) is DENY
    dry = judge(bash("docker restart web"), tier=tier_policy(policy, 3), scope=replace(SCOPE, dry_run=True))
    assert dry.kind is DENY


def test_a_tool_of_a_server_needs_as_many_people_as_its_entry_says() -> None:
    policy = extended('[[tools]]\nname = "mcp__backups__drop"\napprovals = 2')
    call = ToolCall(tool_use_id="1", tool_name="mcp__backups__drop", input={})

    asked = judge(call, tier=tier_policy(policy, 3), scope=SCOPE)

    assert (asked.kind, asked.needed, asked.reason) == (ASK, 2, "mcp__backups__drop needs 2 people's yes")


def test_a_policy_that_is_written_out_needs_as_many_people_as_before() -> None:
    text = 'extends = "default"\n[actions.restart]\napprovals = 2\n[tiers.3.ask]\napprovals = 3\n'
    whole = render(read_document(text, default=DEFAULT_TEXT))

    assert whole.count("approvals = ") == 2
    assert verdict(parse_policy(whole), "docker restart web").needed == 3


def test_nobody_is_asked_in_a_dry_run() -> None:
    policy = extended('[tiers.3.ask]\nactions = ["restart"]')
    dry = replace(SCOPE, dry_run=True)
    for command in ("docker restart web", "python3 /repos/x.py", "$TOOL restart web"):
        told = judge(bash(command), tier=tier_policy(policy, 3), scope=dry)
        assert (told.kind, told.reason[:14]) == (DENY, "dry run: would"), command


def test_the_file_can_forbid_more() -> None:
    policy = extended(
        '[never]\npaths = ["/srv/private"]\ncommands = ["docker * legacy*"]\nservices = ["db"]\nhosts = ["prod-*"]'
    )
    for command in (
        "cat /srv/private/x", "grep -r x /srv --include='*.md'", "docker logs --tail 5 legacy", "docker restart db",
        "ssh prod-1 uptime", "curl http://prod-1:80/x", "ssh host sudo docker logs --tail 5 legacy",
    ):  # fmt: skip
        assert kind(policy, command) is DENY, command
    assert kind(policy, "docker restart web") is ALLOW


def test_other_names_of_a_service_count_as_the_same() -> None:
    policy = extended('[services]\nweb = ["media-web-1", "project:media/web"]')
    command = "docker restart media-web-1 && docker compose -f /srv/media/compose.yml restart web"
    actions = verdict(policy, command, 2).actions
    assert [action.service for action in actions] == ["web", "web"]


def test_another_name_is_a_whole_name_with_the_place_where_it_runs() -> None:
    policy = extended('[services]\nweb = ["web1/web", "namespace:media/web"]\ndb = ["postgres"]')
    commands = {
        "ssh web1 docker restart web": "web",
        "ssh WEB1 docker restart web": "web",
        "kubectl -n media rollout restart deploy/web": "web",
        "ssh web2 docker restart web": "web2/web",
        "docker restart postgres": "db",
        "ssh web1 docker restart postgres": "web1/postgres",
    }
    assert {c: [action.service for action in verdict(policy, c, 2).actions] for c in commands} == {
        command: [name] for command, name in commands.items()
    }


@pytest.mark.parametrize(
    "command",
    [
        "docker restart db",
        "docker restart db-1",
        "ssh web1 docker restart db",
        "kubectl -n x rollout restart deploy/db",
    ],
)
@pytest.mark.parametrize("text", ['[never]\nservices = ["db"]', '[tiers.2]\nservices = ["*", "!db"]'])
def test_a_service_that_is_taken_out_is_out_by_every_name_and_everywhere(text: str, command: str) -> None:
    policy = extended(f'{text}\n[services]\ndb = ["db-1"]')
    assert kind(policy, command, 2) is DENY
    assert kind(policy, command.replace("db", "web"), 2) is ALLOW


def test_a_service_that_a_tier_names_is_the_one_on_this_machine() -> None:
    policy = extended('[tiers.2]\nservices = ["web", "web1/*"]')
    assert kind(policy, "docker restart web", 2) is ALLOW
    assert kind(policy, "ssh web1 docker restart db", 2) is ALLOW
    assert kind(policy, "ssh web2 docker restart web", 2) is DENY


def test_a_person_is_asked_about_a_service_wherever_it_runs() -> None:
    policy = extended('[tiers.3.ask]\nservices = ["db"]')
    assert kind(policy, "ssh web1 docker restart db") is ASK
    assert kind(policy, "ssh web1 docker restart web") is ALLOW


def test_no_name_is_so_long_that_its_column_would_cut_it() -> None:
    policy = extended("")
    assert kind(policy, f"kubectl -n {'a' * 250} rollout restart deploy/web") is DENY


def test_a_directory_that_may_be_written() -> None:
    policy = extended('[tiers.3]\nwrite = ["{workdir}", "/srv/web/config"]')
    for path, expected in (
        ("/srv/web/config/site.yml", ALLOW), ("/srv/web/config/.env", DENY), ("/srv/web/x", DENY),
        ("/srv/web/config/../x", DENY), ("/work/s1/x", ALLOW), (f"{SCOPE.tmpdir}/x", DENY),
    ):  # fmt: skip
        call = ToolCall(tool_use_id="t", tool_name="Edit", input={"file_path": path})
        assert judge(call, tier=tier_policy(policy, 3), scope=SCOPE).kind is expected, path
        assert kind(policy, f"df -h > {path}") is expected, path


def test_tools_of_servers_are_denied_unless_named() -> None:
    policy = extended(
        '[[tools]]\nname = "mcp__grafana__query_*"\nchanges = false\n[[tools]]\nname = "mcp__docker__restart"\n'
        'tier = 2\naction = "restart"\nservice = "container"\n[[tools]]\nname = "mcp__notes__add"\n'
    )

    def asked(name: str, tier: int, *, dry: bool = False, **given: object) -> Verdict:
        call = ToolCall(tool_use_id="t", tool_name=name, input=given)
        return judge(call, tier=tier_policy(policy, tier), scope=replace(SCOPE, dry_run=dry))

    assert asked("mcp__grafana__query_range", 1, dry=True).kind is ALLOW
    assert asked("mcp__grafana__delete", 3).kind is DENY
    assert asked("mcp__docker__restart", 1, container="web").kind is DENY
    assert [a.service for a in asked("mcp__docker__restart", 2, container="web").actions] == ["web"]
    assert asked("mcp__docker__restart", 2).kind is DENY
    assert asked("mcp__docker__restart", 3, container="claudeops").kind is DENY
    assert asked("mcp__notes__add", 1).kind is ALLOW
    assert asked("mcp__notes__add", 1, dry=True).reason == "dry run: would call mcp__notes__add"
    assert judge(ToolCall(tool_use_id="t", tool_name="mcp__notes__add", input={}), tier=tier_policy(POLICY, 3),
                 scope=SCOPE).kind is DENY  # fmt: skip


@pytest.mark.parametrize(
    "command",
    ["docker volume rm data", "docker --context x volume rm data", "docker system prune -af", "kubectl delete ns media",
     "kubectl get secret db", "iptables -A INPUT -j DROP", "ip link set eth0 down", "git push --force",
     "psql -c 'DROP TABLE users'", "mysql -e 'truncate x'", "redis-cli flushall", "claudeops approve 3",
     "systemctl stop claudeops", "docker stop claudeops", "kill -9 1", "pkill x", "reboot", "dd if=/dev/zero of=/x",
     "rm -rf /var/lib/docker/volumes/x", "cat /etc/shadow", "printenv", "resolvectl dns eth0 1.1.1.1",
     "curl http://169.254.169.254/", "sudo docker volume rm data", "ssh host 'docker volume rm data'"],
)  # fmt: skip
def test_no_file_switches_off_what_is_never_allowed(command: str) -> None:
    names = ("docker", "kubectl", "iptables", "ip", "git", "psql", "mysql", "redis-cli", "systemctl", "rm", "cat",
             "resolvectl", "curl")  # fmt: skip
    kinds = {"cat": "file*", "curl": "url*"}
    rules = "".join(
        f'[[commands]]\nname = "{name}"\nreading = "words"\narguments = "{kinds.get(name, "any*")}"\n' for name in names
    )
    tier = '[tiers.1]\ntools = ["Bash"]\nnot_understood = "ask"\n[wrappers]\nssh = 1\nsudo = 1\n'
    policy = parse_policy(tier + rules)
    assert kind(policy, command, 1) is DENY
    assert kind(policy, "docker ps", 1) is ALLOW


# --- mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a = ", 2, "this is not TOML"),
        ("\n\n[tiers.1\n", 4, "this is not TOML"),
        ('extend = "x"', 2, "did you mean 'extends'?"),
        ("[tiers.2]\ntool = []", 3, "the key 'tool' is not known here: did you mean 'tools'?"),
        ("[tiers.2]\n\ntools = ['Bash',\n 'Raed']", 4, "'Raed' is not a tool that can be judged: did you mean 'Read'?"),
        ("[tiers.2]\ntools = 'Bash'", 3, "tiers.2.tools: Expected `array`, got `str`"),
        ("[tiers.two]", 2, "'two' is not a tier: tiers count from 1"),
        ("[tiers.2]\nactions = ['reboot']", 3, "the action 'reboot' has no limit: add [actions.reboot]"),
        ("[tiers.2]\nwrite = ['notes']", 3, "'notes' is not an absolute directory"),
        ("[tiers.2]\nread = ['/srv/../etc']", 3, "is not an absolute directory"),
        ("[tiers.2]\nnot_understood = 'allow'", 3, "write 'deny' or 'ask'"),
        ("[tiers.2.ask]\ncommand = []", 3, "did you mean 'commands'?"),
        ("[tiers.2.ask]\napprovals = 0", 3, "tier 2: 0 people cannot be asked: write 1 to 9, or leave 'approvals' out"),
        ("[tiers.2.ask]\napproval = 2", 3, "did you mean 'approvals'?"),
        ("[actions.drain]\napprovals = 2", 2, "the action 'drain': it has no limit: add limit and window"),
        ("[actions.drain]\nlimit = 2", 2, "the action 'drain': '' is not a duration"),
        ("[actions.restart]\napprovals = 10", 2, "the action 'restart': 10 people cannot be asked: write 1 to 9"),
        ("[actions.restart]\napprovals = -1", 2, "-1 people cannot be asked"),
        ("[actions.restart]\napprovals = true", 3, "actions.restart.approvals: Expected `int`, got `bool`"),
        ("[actions.restart]\napprovals = 'two'", 3, "actions.restart.approvals: Expected `int`, got `str`"),
        ("[[commands]]\nname = 'uptime'\napprovals = 0", 4, "0 people cannot be asked"),
        ("[[tools]]\nname = 'mcp__a__b'\napprovals = 99", 4, "99 people cannot be asked"),
        ("[actions.x]\nlimit = 0\nwindow = '1h'", 2, "a limit of 0 would never allow it"),
        ("[actions.x]\nlimit = 1\nwindow = '1 hour'", 2, "'1 hour' is not a duration"),
        ("[actions.x]\nlimit = 'two'\nwindow = '1h'", 3, "Expected `int`, got `str`"),
        ("[wrappers]\nsuod = 1", 3, "did you mean 'sudo'?"),
        ("[wrappers]\nssh = 9", 3, "there is no tier 9"),
        ("without = ['docker restrat']", 2, "did you mean 'docker restart'?"),
        ("[[commands]]\nname = 'x'\ntier = 7", 4, "there is no tier 7: tiers go from 1 to 3"),
        ("[[commands]]\nname = 'y'\n[[commands]]\nname = 'x'\noptions = '--n=itn'", 6, "did you mean 'int'?"),
        ("[[commands]]\nname = 'x'\narguments = 'paht*'", 4, "'paht' is not a kind of value: known are any, archive"),
        ("[[commands]]\nname = 'x'\narguments = 'flie*'", 4, "did you mean 'file'?"),
        ("[[commands]]\nname = 'x'\nreading = 'getop'", 4, "'getop' is not known: known are getopt, ordered"),
        ("[[commands]]\nname = 'x'\nreading = 'words'\noptions = '-a'", 5, "leave the options out"),
        ("[[commands]]\nname = 'x'\nlook = 'svn'", 4, "'svn' is not known: known are git, network, processes"),
        ("[[commands]]\nname = 'x'\noptions = '--n=re:('", 4, "is not a regular expression"),
        ("[[commands]]\nname = 'x'\noptions = '--n=re:(?!y)z'", 4, "it has no look-around"),
        ("[[commands]]\nname = 'x'\narguments = 're:(?<=y)z*'", 4, "it has no look-around"),
        ("[[commands]]\nname = 'x'\narguments = 're:a{1,2000}'", 4, "is not a regular expression of google-re2"),
        ("[[commands]]\nname = 'x'\noptions = '-a'\nrequired = '-b'", 5, "-b is not among the options"),
        ("[[commands]]\nname = 'x'\noptions = 'verbose'", 4, "'verbose' is not an option"),
        ("[[commands]]\nname = 'x'\naction = 'reboot'", 4, "the action 'reboot' has no limit"),
        ("[[commands]]\nname = 'x'\narguments = 'name'\naction = 'restart'", 5, "no argument names the service"),
        ("[[commands]]\nname = 'docker volume rm'\narguments = 'name'", 3, "can be allowed at no tier"),
        ("[[commands]]\nname = 'printenv'", 3, "can be allowed at no tier"),
        ("[[commands]]\ntier = 1", 2, "missing required field `name`"),
        ("[[tools]]\nname = 'mcp__*__*'", 3, "is not a tool of a server"),
        ("[[tools]]\nname = 'mcp__a__b'\naction = 'restart'", 4, "belong together"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_the_remedy(text: str, line: int, said: str) -> None:
    with pytest.raises(PolicyFault) as refused:
        extended(text)
    assert said in str(refused.value)
    assert refused.value.line == line


@pytest.mark.parametrize("text", ["", "[never]", "[tiers.2]\ntools = ['Bash']"], ids=["empty", "no tier", "no first"])
def test_no_tier_gets_the_rights_of_a_higher_one_because_its_own_are_missing(text: str) -> None:
    with pytest.raises(PolicyFault, match=r"tier 1 is missing: add \[tiers\.1\]"):
        parse_policy(text)


def test_only_the_default_can_be_extended() -> None:
    with pytest.raises(PolicyFault, match="there is no policy 'strict' to extend: known are default"):
        parse_policy('extends = "strict"', default=DEFAULT_TEXT)


def test_lines_are_found_in_any_valid_spelling() -> None:
    text = (
        'a = """\n[no]\nb = 1\n"""\n[t.\'x y\']  # c = 1\nk = [ # ]\n  {z = \'[\'}, "]",\n]\na."b.c" = 2\n'
        "[[l]]\nn = '''\n'''\n[[l]]\n[l.sub]\nm = 1"
    )
    lines = key_lines(text)
    assert lines == {
        ("a",): 1, ("t", "x y"): 5, ("t", "x y", "k"): 6, ("t", "x y", "a"): 9, ("t", "x y", "a", "b.c"): 9,
        ("l", 0): 10, ("l", 0, "n"): 11, ("l", 1): 13, ("l", 1, "sub"): 14, ("l", 1, "sub", "m"): 15,
    }  # fmt: skip
    assert line_of(lines, ("l", 1, "sub", "m", 4)) == 15
    assert line_of(lines, ("nothing",)) == 1


def test_every_line_of_the_default_is_found() -> None:
    lines = key_lines(DEFAULT_TEXT)
    commands = [number for number, line in enumerate(DEFAULT_TEXT.splitlines(), 1) if line.startswith("[[commands]]")]
    assert [lines["commands", index] for index in range(len(commands))] == commands
    assert len(commands) > 250
    assert re.findall(r"^name = .*", DEFAULT_TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("keys", "line", "said"),
    [
        ("line = '-h'", 4, """'line' is of the old form: write reading = "words", arguments = "re:-h" ("""),
        (
            "line = 'a|b c'",
            4,
            """write reading = "words", arguments = "re:a"; or reading = "words", arguments = "re:b re:c""",
        ),
        ("tokens = '[a-z]+'", 4, """'tokens' is of the old form: write reading = "words", arguments = "re:[a-z]+*"""),
        ("tier = 2\ntokens = 'a'\nexcludes = 'b'", 5, "is of the old form: write options and arguments ("),
        (
            "inert = true\narguments = 'any*'",
            4,
            """'inert' is of the old form: write reading = "words", arguments = "any*""",
        ),
        ("ordered = true\noptions = '-a'", 4, """write reading = "ordered", options = "-a" ("""),
        ("long_options = true\noptions = '-a'", 4, """write reading = "single", options = "-a" ("""),
        ("output = 'names'", 4, "'output' is of the old form: write options and arguments ("),
    ],
)
def test_a_rule_of_the_old_form_is_refused_with_its_line_and_the_new_form(keys: str, line: int, said: str) -> None:
    with pytest.raises(PolicyFault) as refused:
        extended(f"[[commands]]\nname = 'x'\n{keys}")
    assert said in str(refused.value)
    assert "'claudeops policy migrate FILE' writes the whole file so" in str(refused.value)
    assert refused.value.line == line


def test_lines_of_strings_that_end_in_quotes_and_go_over_several_lines_are_known() -> None:
    text = 'a = """x\\n""""\nb = """\n"y"""""\nc = 1\n' + "d = '''\n'z''''\ne = 1\n"
    assert key_lines(text) == {("a",): 1, ("b",): 2, ("c",): 4, ("d",): 5, ("e",): 7}
    assert tomllib.loads(text)["e"] == 1
