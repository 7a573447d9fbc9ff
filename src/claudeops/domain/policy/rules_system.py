"""Rules for looking at a machine: its processes, services, logs, disks and hardware."""

from __future__ import annotations

from typing import Final

from claudeops.domain.policy.rules import CommandGroup, CommandRule

_WORD: Final = r"[A-Za-z0-9_./:@%,][A-Za-z0-9_.,:@%/=+*-]*"  # no option
_NO_ENDLESS = "it never ends: ask for a number of lines instead"

SYSTEM_RULES: Final = (
    # --- the machine ------------------------------------------------------------------------------------
    CommandRule(name="uptime", line="(?:-[ps])?"),
    CommandRule(name="uname", line="(?:-[asnrvmpio]+)?"),
    CommandRule(name="hostname", line="(?:-[fiIsdA])?"),
    CommandRule(name="hostnamectl", line="(?:status)?"),
    CommandRule(name="timedatectl", line="(?:status|show|timesync-status)?"),
    CommandRule(name="arch", line=""),
    CommandRule(name="nproc", line="(?:--all)?"),
    CommandRule(name="getconf", line="[A-Z_0-9a-z-]+"),
    CommandRule(name="locale", line="(?:-a)?"),
    CommandRule(name="ulimit", line="-[aHSncfdmtuv]+"),
    CommandRule(name="id", tokens=r"-[ugGnrz]+|\w[\w.-]*"),
    CommandRule(name="groups", tokens=r"\w[\w.-]*"),
    CommandRule(name="whoami", line=""),
    CommandRule(name="tty", line=""),
    CommandRule(name="who", line="(?:-[abHqru]+)?"),
    CommandRule(name="w", line="(?:-[hsif]+)?"),
    CommandRule(name="users", line=""),
    CommandRule(name="last", tokens=r"-[aFixwn]*\d{0,4}|\w[\w.-]*"),
    CommandRule(name="lastlog", tokens=r"-u|\w[\w.-]*"),
    CommandRule(
        name="date",
        options="-u|--utc|--universal -R|--rfc-email -I|--iso-8601=?word --rfc-3339=word -d|--date=text"
        " -r|--reference=listing",
        arguments="format?",
        hint="the clock is never set",
    ),
    CommandRule(name="cal", tokens=r"-?\d{1,4}"),
    CommandRule(name="free", tokens="-[bkmghtwl]+|--(?:mebi|gibi|mega|giga|human|si|total|wide)"),
    CommandRule(
        name="vmstat", line=r"(?:-[antwmsMSd]{1,4})?(?: ?\d{1,2} \d{1,2})?", hint="give an interval and a count"
    ),
    CommandRule(
        name="iostat|mpstat|sar|pidstat", line=r"(?:-[A-Zcdhjkmpstuxrwy]{1,6})?(?: (?:ALL|DEV))?(?: ?\d{1,2} \d{1,2})?"
    ),
    CommandRule(name="lscpu|lsusb|lsmod|lspci|lshw", tokens="-[evknxtm]+|-short"),
    CommandRule(name="lsblk", tokens=rf"-[abdefhilmnoprstJOPST]+|--(?:output|json|paths|all|fs)|{_WORD}"),
    CommandRule(name="blkid", line=r"(?:/dev/[\w/-]+)?"),
    CommandRule(name="findmnt", tokens=rf"-[aAlnDJorstTM]+|--(?:df|json|real|verify)|{_WORD}"),
    CommandRule(name="mount", line="(?:-l)?", hint="mount may only list"),
    CommandRule(name="swapon", line="(?:-s|--show)"),
    CommandRule(name="sensors", line="(?:-[uAf]+)?"),
    CommandRule(name="nvidia-smi", line=r"(?:-L|-q)?"),
    CommandRule(name="smartctl", options="-H -a -A -i -x -l=word -d=word -j|--json=?word", arguments="device"),
    CommandRule(name="nvme", line=r"list|(?:smart-log|id-ctrl) /dev/nvme\w+"),
    CommandRule(name="zpool|zfs", line=rf"(?:status|list|iostat|get)(?: (?:-[vxHpLPrto]+|{_WORD}))*"),
    CommandRule(name="mdadm", line=r"(?:--detail|-D) (?:--scan|/dev/md\w+)"),
    CommandRule(name="btrfs", line=r"(?:filesystem|fi) (?:usage|df|show)(?: \w[\w./-]*)?|scrub status [\w./-]+"),
    CommandRule(name="lvs|vgs|pvs", tokens=rf"-[aovS]+|--(?:units|noheadings)|{_WORD}"),
    CommandRule(
        name="dmesg",
        options="-T|--ctime -H -L -x|--decode -k|--kernel -u -l|--level=word -f=word --since=text",
        hint="-C, -c and -w are not allowed",
    ),
    CommandRule(name="sysctl", tokens=r"-[anNe]+|[a-z0-9_][A-Za-z0-9_./-]*", hint="sysctl may only read"),
    # --- processes --------------------------------------------------------------------------------------
    CommandRule(
        name="ps",
        line=r"(?!.*environ)(?:(?:[alxufwrjhTv]+|-aux[fw]*|-[AadfFjlLTwHyMNZ]*e?[AadfFjlLTwHyMNZ]*"
        r"|(?:[alxuf]*o|-[AaedfFjlLTwHyM]*o|-[OpCugtGUq]|--(?:sort|pid|ppid|user|cols|format)=?) ?[\w%+-][\w%,=:.+/-]*"
        r"|--(?:no-headers?|headers?|forest|deselect)|\d[\d,]*)(?: |$))*",
        hint="forms that show the environment are not allowed",
    ),
    CommandRule(name="pgrep|pidof", tokens=rf"-[aflnoxcvuwL]+|{_WORD}"),
    CommandRule(name="pstree", tokens=r"-[aclnptSu]+|\w[\w-]*"),
    CommandRule(
        name="top", line=r"(?:-bn ?1|-b -n ?1|-n ?1 -b)(?: -[cHiw]+| -o [%A-Z]+| -p [\d,]+)*", hint="use top -bn1"
    ),
    CommandRule(name="kill", line=r"-0 \d+", hint="processes are never killed by hand: restart the service"),
    CommandRule(name="lsof", tokens=rf"-[nPtlbwaU]+|-i[\w.:@/,-]*|-[upcs][\w.,:^-]*|\+L1|{_WORD}"),
    CommandRule(name="fuser", tokens=rf"-[vmnu46]+|{_WORD}", hint="processes are never killed by hand"),
    # --- disks and files, names only ---------------------------------------------------------------------
    CommandRule(
        name="df",
        options="-h|--human-readable -H|--si -i|--inodes -k -m -a|--all -l|--local -P|--portability -T|--print-type"
        " --total -B|--block-size=size -t|--type=word -x|--exclude-type=word --output=?word",
        arguments="listing*",
    ),
    CommandRule(
        name="du",
        options="-h|--human-readable -s|--summarize -a|--all -c|--total -k -m -b|--bytes -x|--one-file-system -S -L"
        " -D --si -d|--max-depth=int:9 -t|--threshold=size --exclude=glob --time -0 --inodes --apparent-size"
        " -B|--block-size=size",
        arguments="listing*",
    ),
    CommandRule(
        name="ls|dir|ll",
        options="-a|--all -A|--almost-all -l -h|--human-readable -t -r|--reverse -S -R|--recursive -d|--directory -1"
        " -i|--inode -n|--numeric-uid-gid -s|--size -F|--classify -g -o -G|--no-group -L|--dereference -H -c -u -U"
        " -x -C -m -p -q -Q -N -X -v -Z -b -k --color=?word --full-time --time-style=text --sort=word --time=word"
        " --group-directories-first --si -I|--ignore=glob",
        arguments="listing*",
    ),
    CommandRule(
        name="stat",
        options="-c|--format=text -f|--file-system -L|--dereference -t|--terse --printf=text",
        arguments="listing+",
    ),
    CommandRule(
        name="readlink|realpath", options="-f -e -m -n -q -s -z|--zero --relative-to=listing", arguments="listing+"
    ),
    CommandRule(name="basename|dirname", options="-a -s=text -z", arguments="any*", inert=True),
    CommandRule(name="namei", options="-l -o -m", arguments="listing+"),
    CommandRule(name="getfacl", options="-p -n", arguments="listing+"),
    CommandRule(
        name="tree",
        options="-a -d -L=int:9 -f -h -s -D -I=glob -P=glob -C -p -u -g --du --noreport",
        arguments="listing*",
    ),
    CommandRule(name="pwd", line="(?:-[LP])?"),
    CommandRule(name="cd", options="", arguments="directory?"),
    # --- services and logs -------------------------------------------------------------------------------
    CommandRule(
        name="systemctl", tokens="--(?:failed|version|all|no-pager|no-legend|plain|state=[a-z,]+|type=[a-z,]+)"
    ),
    CommandRule(name="systemctl status", arguments="text*"),
    CommandRule(name="systemctl is-active", arguments="text+"),
    CommandRule(name="systemctl is-failed", arguments="text*"),
    CommandRule(name="systemctl is-enabled", arguments="text+"),
    CommandRule(name="systemctl is-system-running"),
    CommandRule(name="systemctl list-units", arguments="text*"),
    CommandRule(name="systemctl list-unit-files", arguments="text*"),
    CommandRule(name="systemctl list-timers", arguments="text*"),
    CommandRule(name="systemctl list-sockets", arguments="text*"),
    CommandRule(name="systemctl list-jobs"),
    CommandRule(name="systemctl list-dependencies", arguments="text*", options="--reverse"),
    CommandRule(name="systemctl cat", arguments="name+"),
    CommandRule(
        name="systemctl show",
        options="-p|-P|--property=properties --value",
        required="-p",
        arguments="name*",
        hint="name the properties: --property=ActiveState,SubState",
    ),
    CommandRule(name="service", line=r"[\w@.-]+ status|--status-all"),
    CommandRule(name="rc-service", line=r"[\w@.-]+ status"),
    CommandRule(name="rc-status", line="(?:-[asu])?"),
    CommandRule(name="systemd-analyze", line=r"(?:blame|critical-chain|time)(?: \w[\w@.-]*)*(?: --no-pager)?"),
    CommandRule(name="loginctl", line="(?:list-sessions|list-users)?(?: --no-pager)?"),
    CommandRule(name="coredumpctl", line=r"list(?: --no-pager)?(?: \w[\w.-]*)?"),
    CommandRule(
        name="journalctl",
        options="-u|--unit=text --user-unit=text --user --system -n|--lines=?int -n=int:100000 -S|--since=text"
        " -U|--until=text -p|--priority=word -g|--grep=text --case-sensitive=?word --no-pager"
        " -o|--output=re:(short(-[a-z-]+)?|cat|with-unit|json(-pretty)?) -x|--catalog -e|--pager-end -r|--reverse"
        " -k|--dmesg -b|--boot=?text -t|--identifier=text --disk-usage --list-boots -q|--quiet -a|--all -l|--full"
        " -NUM --utc --no-hostname --no-full --facility=word --output-fields=re:(?!.*ENVIRON)[A-Z_,]+ -m|--merge",
        arguments="text*",
        hint=f"-f is not allowed, {_NO_ENDLESS}; neither is what deletes or rotates logs",
    ),
    CommandRule(name="journalctl", options="--header --verify --no-pager"),
    CommandRule(name="crontab", line=r"-l(?: -u [\w-]+)?|-u [\w-]+ -l"),
    CommandRule(name="logrotate", line=r"(?:-d|--debug) /etc/logrotate\.(?:conf|d/[\w.-]+)"),
    CommandRule(name="fail2ban-client", line=r"status(?: \w[\w-]*)?|ping|version"),
    # --- packages ----------------------------------------------------------------------------------------
    CommandRule(
        name="apt",
        line=r"list(?: --(?:upgradable|installed|upgradeable))*(?: \w[\w.+*-]*)*|(?:show|policy) \w[\w.+:-]*|--version",
    ),
    CommandRule(name="apt-cache", line=r"(?:policy|show|search|madison)(?: \w[\w.+:-]*)*"),
    CommandRule(
        name="dpkg",
        line=r"-[lsL](?: \w[\w.+:*-]*)*|--(?:list|status|print-architecture)(?: \w[\w.+:-]*)*|-S [\w./][\w./+-]*",
    ),
    CommandRule(name="dpkg-query", line=r"-[lsW](?: \w[\w.+:*-]*)*"),
    CommandRule(name="rpm", line=r"-q[ail]*(?: \w[\w.+:-]*)*"),
    CommandRule(name="dnf|yum", line=r"(?:list|check-update|info|repolist)(?: \w[\w.+*-]*)*"),
    CommandRule(name="apk", line=r"(?:info|list|version)(?: (?:-[Ivdae]+|\w[\w.+-]*))*"),
    CommandRule(name="snap", line=r"(?:list|services|changes|version)(?: \w[\w.-]*)?"),
    # --- known servers ------------------------------------------------------------------------------------
    CommandRule(name="nginx", line="-t|-v|-V|-t -q"),
    CommandRule(name="apachectl|apache2ctl|httpd", line="-t|-v|-S|configtest|fullstatus|status"),
    CommandRule(name="sshd", line="-[tT]"),
    CommandRule(name="visudo", line="-c"),
    CommandRule(name="postconf", line="-n"),
    CommandRule(name="named-checkconf", line=""),
    CommandRule(name="caddy|traefik|haproxy", line="version|-v|healthcheck"),
    CommandRule(name="mailq", line=""),
    CommandRule(name="postqueue", line="-p|-j"),
    CommandRule(name="certbot", line="certificates"),
    CommandRule(
        name="pg_isready",
        options="-h|--host=host -p|--port=int -d|--dbname=name -U|--username=name -t|--timeout=int -q|--quiet",
    ),
    CommandRule(
        name="redis-cli",
        options="-h=host -p=int -n=int --no-auth-warning",
        arguments="one:ping,PING,info,INFO,dbsize,DBSIZE,lastsave,role,time word?",
    ),
    CommandRule(
        name="mysqladmin|mariadb-admin",
        options="-h|--host=host -P|--port=int -u|--user=name --connect-timeout=int --silent",
        arguments="one:ping,status,version",
    ),
    CommandRule(
        name="rabbitmqctl|rabbitmq-diagnostics",
        line="(?:-q )?(?:status|ping|cluster_status|list_queues|check_running|check_port_connectivity"
        "|list_connections)(?: [a-z_]+)*",
    ),
    CommandRule(name="etcdctl", line=r"endpoint (?:health|status)(?: --cluster)?(?: -w table)?"),
    CommandRule(name="consul|nomad", line=r"members|(?:node |job |server )?(?:status|members)(?: \w[\w.-]*)?"),
    CommandRule(name="vault", line="status"),
    CommandRule(name="supervisorctl", line=r"(?:status|version|pid)(?: \w[\w.:-]*)*"),
    CommandRule(name="pm2", line=r"list|ls|status|describe \w[\w.-]*"),
    CommandRule(name="virsh", line=r"list(?: --all)?|dominfo \w[\w.-]*|nodeinfo"),
    CommandRule(name="chronyc", line="(?:-n )?(?:tracking|sources|sourcestats|activity)(?: -v)?"),
    CommandRule(name="ntpq", line="-p|-pn"),
    CommandRule(name="tailscale", line="status|ip|version|netcheck"),
    CommandRule(name="claudeops", line="(?!)", hint="a session never gives orders to its own supervisor"),
    # --- what may be changed ------------------------------------------------------------------------------
    CommandRule(name="systemctl restart", tier=2, arguments="unit+", action="restart"),
    CommandRule(name="systemctl try-restart", tier=2, arguments="unit+", action="restart"),
    CommandRule(name="systemctl reload-or-restart", tier=2, arguments="unit+", action="restart"),
    CommandRule(name="systemctl start", tier=2, arguments="unit+", action="restart"),
    CommandRule(name="systemctl reload", tier=2, arguments="unit+", action="restart"),
    CommandRule(name="systemctl reset-failed", tier=2, arguments="unit+", action="restart"),
    CommandRule(name="systemctl stop", tier=3, arguments="unit+", action="restart"),
    CommandRule(name="systemctl daemon-reload", tier=3, action="restart", service="systemd"),
    CommandRule(name="service", tier=2, arguments="unit one:restart,start,reload", action="restart"),
    CommandRule(name="service", tier=3, arguments="unit one:stop", action="restart"),
    CommandRule(name="rc-service", tier=2, arguments="unit one:restart,start,reload", action="restart"),
    CommandRule(name="supervisorctl", tier=2, arguments="one:restart,start service+", action="restart"),
    CommandRule(name="nginx", tier=2, options="-s=one:reload", required="-s", action="restart", service="nginx"),
    CommandRule(name="apachectl|apache2ctl", tier=2, arguments="one:graceful", action="restart", service="apache2"),
)

SYSTEM_GROUPS: Final = (
    CommandGroup(
        name="systemctl",
        options="--no-pager -l|--full -n|--lines=int -o|--output=word -a|--all -t|--type=word --state=word --failed"
        " --no-legend --plain -q|--quiet --user --system --no-block --wait --no-ask-password",
        shared=True,
    ),
)
