"""What no policy file can allow, at any tier; written in code, because a file can be edited to allow anything.

Data volumes, secrets, network and DNS, bulk clean-up, forced pushes, dropped and truncated tables, machines and disks,
and the supervisor's own commands, processes, services and files. The same is searched for in text that cannot be
parsed: a person may say yes to what is not understood, but not to these.

Besides the commands here: `claudeops.policy.places` (paths) and `claudeops.policy.reach` (addresses).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from claudeops.text import regex

NEVER_TOOLS: Final = frozenset({"mcp__*", "mcp__*__*"})
"""Names that would allow every tool of every server."""

_DATA: Final = "data volumes are never touched"
_DESTROYED: Final = "data is never destroyed"
_TABLES: Final = "databases and tables are never dropped or truncated"
_PRUNE: Final = "bulk clean-up is never allowed"
_DISKS: Final = "disks are never written"
_SECRETS: Final = "secrets are never read"
_NETWORK: Final = "the network is never changed"
_HISTORY: Final = "history is never overwritten"
_MACHINE: Final = "machines are never switched off, and their directories never removed"
_PROCESSES: Final = "processes are never killed by hand: restart the service"
_SELF: Final = "the supervisor itself is never touched or commanded by a session"

_SHORT: Final = {
    "ENGINE": r"(?:docker|podman|nerdctl)",
    "KUBE": r"(?:kubectl|oc)",
    "SQL": r"(?:psql|mysql|mariadb|sqlite3|cqlsh|sqlcmd|clickhouse-client|cockroach|influx|mongosh?|duckdb|usql)",
    "STORE": r"(?:zfs|zpool|btrfs|ceph|rbd|etcdctl|velero|restic|borg|rados|gluster|aws|gcloud|az|gsutil|mc|rclone)",
    "KEPT": r"/(?:var/lib/(?:docker|containerd|kubelet|postgresql|mysql|redis|rancher|etcd|vault)|pgdata)(?:/\S*)?",
    "KEEPER": r"(?:systemctl|service|rc-service|supervisorctl|sv|pm2|(?:docker|podman)(?:-compose)?|kubectl|oc|helm)",
    "CHANGED": r"(?:re)?(?:start|stop|load|kill|rm|remove|delete|disable|mask|pause|scale|update|uninstall|edit)",
}
_ROWS: Final = (
    # --- data
    (_DATA, r"ENGINE ... volume ... (?:rm|remove|prune)"),
    (_DATA, r"(?:ENGINE ... compose|docker-compose|podman-compose) ... (?:down|rm) ... (?:-[a-z]*v[a-z]*|--volumes)"),
    (_DATA, r"ENGINE ... rm ... (?:-[a-z]*v[a-z]*|--volumes)"),
    (_DATA, r"(?:rm|mv|cp|tee|truncate|chmod|chown|ln|rsync|install|unlink|find|tar) ... \S*KEPT"),
    (_PRUNE, r"ENGINE ... (?:system|image|container|network|builder|buildx) ... prune"),
    (_DESTROYED, r"KUBE ... delete ... --all"),
    (
        _DESTROYED,
        r"KUBE ... delete ... (?:\S*[,/])?(?:(?:persistentvolume|namespace|secret|crd).*|(?:pvc?|ns)(?:[ /,].*)?)",
    ),
    (_DESTROYED, r"STORE ... \S*(?:destroy|rollback|delete|remove|rb|rm|purge|forget|prune|wipe|labelclear)"),
    (_TABLES, r"SQL .*\b(?i:drop|truncate)\b.*"),
    (_TABLES, r"(?:dropdb|dropuser|mysqladmin ... drop|redis-cli ... (?i:flush(?:all|db)))"),
    (_DISKS, r"(?:lvremove|vgremove|pvremove|lvreduce|mkfs(?:\.\w+)?|mke2fs|wipefs|dd|shred|s?fdisk|parted|sgdisk)"),
    (_DISKS, r"(?:mkswap|blkdiscard|cryptsetup|hdparm|fstrim)"),
    # --- secrets
    (_SECRETS, r"KUBE ... (?:get|describe|edit|patch|replace) ... (?:\S*[,/])?secrets?(?:[,/.]\S*)?"),
    (_SECRETS, r"(?:printenv|(?:env|set|(?:export|declare|typeset)(?: -[px]+)?|compgen -[ev]+)$)"),
    (
        _SECRETS,
        r"(?:vault ... (?:read|kv|token|unwrap)|pass ... show|op ... (?:read|item|inject)|sops|ansible-vault|age)",
    ),
    (_SECRETS, r"(?:aws ... (?:secretsmanager|ssm|sts|configure)|gcloud ... (?:secrets|auth)|security)"),
    (_SECRETS, r"(?:gpg ... (?:-d|--decrypt|--export-secret\S*)|ENGINE ... (?:secret|login))"),
    # --- network and names
    (_NETWORK, r"(?:ip6?tables|ebtables|arptables) ... -[46]*[ADIFPXRNZE]\w*"),
    (_NETWORK, r"(?:ip6?tables|ebtables|arptables) ... --(?:append|delete|insert|replace|flush|zero|policy|\w+-chain)"),
    (_NETWORK, r"(?:ip6?tables-restore|ipset|brctl|ifup|ifdown|dhclient|dhcpcd|nsupdate|rndc|pdnsutil|wg-quick|iw)"),
    (_NETWORK, r"(?:wpa_cli|vconfig|ovs-vsctl|ifconfig (?:-\S+ )*[^- ]\S* \S+|hostnamectl ... (?:set-)?hostname \S+)"),
    (_NETWORK, r"nft ... (?:add|delete|flush|insert|replace|destroy|create|reset|rename|-f|--file)"),
    (_NETWORK, r"ufw ... (?:enable|disable|allow|deny|reject|limit|delete|reset|reload|insert|prepend|route|default)"),
    (_NETWORK, r"firewall-cmd ... --(?:add|remove|reload|complete-reload|set|new|delete|panic-on|change)\S*"),
    (_NETWORK, r"(?:ip|tc|bridge|route) ... (?:add|del|delete|set|flush|replace|change|append|exec)"),
    (_NETWORK, r"(?:ip|bridge) ... (?:s|se|set) ... (?:up|down)"),
    (_NETWORK, r"nmcli ... (?:up|down|mod\w*|del\w*|add|edit|reload|on|off|connect|disconnect|reapply|set)"),
    (_NETWORK, r"networkctl ... (?:up|down|reload|reconfigure|renew|forcerenew|delete)"),
    (_NETWORK, r"resolvectl ... (?:(?:dns|domain|dnssec|dnsovertls|llmnr|mdns) \S+ \S+|revert|flush-caches)"),
    (_NETWORK, r"(?:tailscale ... (?:up|down|set|logout|login|switch)|wg ... (?:set\w*|addconf|syncconf|genkey))"),
    (_NETWORK, r"(?:ENGINE ... network ... (?:rm|remove|create|connect|disconnect)|ethtool ... -[sKAGCLNXU])"),
    # --- history and machines
    (_HISTORY, r"git ... push ... (?:-[a-z]*[fd][a-z]*|--force\S*|--mirror|--delete|--prune|\+\S+|:\S+)"),
    (_MACHINE, r"(?:shutdown|reboot|halt|poweroff|telinit|kexec|init [0-6])"),
    (_MACHINE, r"systemctl ... (?:poweroff|reboot|halt|kexec|rescue|emergency|suspend|hibernate|isolate|default)"),
    (_MACHINE, r"rm ... (?:/|/\*|/[a-z]+/?\*?|~/?|\.|\*)"),
    # --- processes and the supervisor
    (
        _PROCESSES,
        r"(?:pkill|killall5?|skill|xkill|tskill|kill (?:|[^-].*|-|-[^0lL].*|-[0lL][^ ].*)|fuser ... -\w*k\w*)",
    ),
    (_SELF, r"(?i:claudeops)\S*"),
    (_SELF, r"python[\d.]* ... claudeops(?:\.\S+)?"),
    (_SELF, r"KEEPER ... CHANGED ... \S*(?i:claudeops)\S*"),
    (_SELF, r"(?:systemctl|service) ... \S*(?i:claudeops)\S* CHANGED"),
)
"""Reasons and regular expressions for a command with its arguments, separated by one blank, from its name on.

`` ... `` stands for any arguments, and a match ends at the end of an argument.
"""

_FORBIDDEN_TEXT: Final = (
    ("metadata addresses are never asked", r"169\.254\.169\.254|metadata\.google\.internal|100\.100\.100\.200"),
    (_SECRETS, r"/etc/(?:g?shadow|sudoers)|/proc/\S*/environ|/\.(?:ssh|aws|kube|gnupg)\b|\bid_(?:rsa|ed25519)\b"),
    # The parts of /proc about the machine are harmless; those of a process lead anywhere, its /root to every file.
    ("processes are never looked into", r"/proc/(?:[\d$`{*?\[]|self\b|thread-self\b)"),
    (_SECRETS, r"\$\{?[!#]?[\pL\pN_]*(?:ANTHROPIC|API_?KEY|TOKEN|SECRET|PASSW|CREDENTIAL|BROWSER_CRED)"),
    (_SECRETS, r"\b(?:export -p|declare -[px]|compgen -[ev])|\$\{!|(?:^|[|;&(]) *(?:env|printenv|set) *(?:$|[|;&)>])"),
    (_TABLES, r"(?i)\b(?:drop\s+(?:table|database|schema|index|user|role)|truncate\s+(?:table\s+)?[\pL\pN_])"),
    (_MACHINE, r"\brm\s+-[a-zA-Z]*[rR]\S*\s+(?:--\s+)?/(?:$|\W|\w+(?:$|[^\w/]|/(?:$|\W)))"),
    (_DISKS, r"\bof=/dev/|\bmkfs\b|>\s*/dev/(?:sd|nvme|vd|mapper)"),
)

PROTECTED_UNITS: Final = (
    (
        regex.Pattern(r".*\.(?:target|mount|automount|swap|slice|scope|device|socket|timer|path)"),
        "only services are restarted",
    ),
    (
        regex.Pattern(
            r"network(?:ing|-.*)?|NetworkManager.*|firewalld|ufw|nftables|iptables|netfilter-.*|wg-quick.*|sshd?(?:@.*)?"
            r"|dropbear.*|dhcpcd.*|dhclient.*|connman|ifup.*|keepalived|shorewall.*|openvswitch.*|ovs.*|hostapd.*"
            r"|wpa_supplicant.*|iwd|ModemManager"
        ),
        "the network and the way in are never touched",
    ),
    (
        regex.Pattern(
            r"snap\.(?:docker|microk8s|lxd|k8s)\..*|docker|microk8s|lxd|containerd|kubelet|k3s.*|k0s.*|rke2.*|cri-?o|podman|libvirtd|lxc"
            r"|incus.*|pve.*|proxmox.*|corosync|pacemaker|multipathd|iscsid|libvirt-guests"
        ),
        "that would restart everything on the machine: name the service",
    ),
    (
        regex.Pattern(
            r"systemd-.*|dbus.*|plymouth.*|polkit|getty@.*|rescue|emergency|init|debug-shell|user@.*"
            r"|rc-local|apt-daily.*|unattended-upgrades|packagekit.*|fstrim|e2scrub.*|fwupd.*"
            r"|dnf-automatic.*|initrd-.*|dracut-.*|kexec.*|halt-local|open-iscsi|drbd.*|zfs-.*|lvm2-.*|autofs"
            r"|cryptdisks.*|rpcbind|display-manager|ifplugd"
        ),
        "the machine's own base is never touched",
    ),
)
_UNQUOTED: Final = str.maketrans("", "", "\\'\"")
_OWN_SERVICE: Final = regex.Pattern(r"(?is)(?:.*[-_])?claude-?ops.*")


def refuse_line(line: str) -> str | None:
    """Return why a command with its arguments is never allowed, or None; its words are separated by one blank."""
    for pattern, reason in _NEVER if _ANY_NEVER.match(line) else ():
        if pattern.match(line):
            return f"{reason}, at any tier"
    return None


def refuse_text(text: str, forbidden: Iterable[str] = ()) -> str | None:
    """Return why a text that cannot be parsed names something that is never allowed, or None.

    ``forbidden``: paths of the supervisor itself.
    """
    flat = " ".join(text.translate(_UNQUOTED).split())
    for pattern, reason in _IN_TEXT if _ANY_IN_TEXT.search(flat) else ():
        if pattern.search(flat):
            return f"{reason}, at any tier"
    for path in forbidden:
        if regex.search(rf"{regex.escape(path)}(?:[^\w.-]|$)", flat):
            return f"{path} belongs to the supervisor itself: it is never read nor written"
    return None


def refuse_service(service: str, *, unit: bool) -> str | None:
    """Return why a service is never acted on, or None; ``unit``: it is a systemd unit."""
    if _OWN_SERVICE.fullmatch(service):
        return "the supervisor itself is never touched by a session"
    if service == "all":
        return "name single services: acting on all of them at once is not allowed"
    for pattern, reason in PROTECTED_UNITS if unit else ():
        if pattern.fullmatch(service):
            return reason
    return None


def _any(patterns: Iterable[tuple[regex.Pattern[str], str]]) -> regex.Pattern[str]:
    """Return one pattern that matches where any of the given ones does, so that one search is enough."""
    return regex.Pattern("|".join(f"(?:{pattern.expression})" for pattern, _ in patterns))


def _expression(row: str, end: str) -> str:
    for short, written in _SHORT.items():
        row = row.replace(short, written)
    return f"(?:{row.replace(' ... ', '(?: [^ ]+)*? ')}){end}"


_NEVER: Final = tuple((regex.Pattern("(?s)" + _expression(row, "(?: |$)")), reason) for reason, row in _ROWS)
_IN_TEXT: Final = tuple(
    (regex.Pattern(r"(?:^|[\s;&|(){}`/=,\[])" + _expression(row, r"(?:[^\w-]|$)")), reason)
    for reason, row in _ROWS
    if not row.startswith(("(?:printenv", "rm", "(?:lvremove", "(?:vault"))  # names that are words of other languages
) + tuple((regex.Pattern(row), reason) for reason, row in _FORBIDDEN_TEXT)
_ANY_NEVER: Final = _any(_NEVER)
_ANY_IN_TEXT: Final = _any(_IN_TEXT)
