"""What programs do beside their task, and why that is harmless: files that they read, programs that they start.

A path is a regular expression that must fit all of it; a program is named by the last part of its path. Whatever is not
here is a finding of `support.rule_runs`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Habit:
    """What some programs do."""

    programs: str  # by ``|``; ``*``: all
    reason: str
    opens: str = r"[^\s\S]"  # nothing
    writes: str = r"[^\s\S]"
    executes: str = r"[^\s\S]"  # the paths of programs
    changes: str = r"[^\s\S]"  # calls of the kernel
    sockets: str = r"[^\s\S]"
    connects: bool = False  # to the hosts that its arguments name, and to the name server


_NET = (
    r"/etc/(hosts|host\.conf|resolv\.conf|services|gai\.conf|networks|protocols|rpc|netconfig|bindresvport\.blacklist)"
)
_OF_PROCESSES = (
    r"/proc(/\d+(/(stat|status|statm|comm|cmdline|schedstat|ctty|wchan|fdinfo|fd|maps|ns|net|task|task/\d+"
    r"(/(stat|status|comm|cmdline))?|fdinfo/\d+|mountinfo|io|smaps_rollup|limits|cgroup))?)?|/proc/self/(stat|status|fd)"
)
_OF_THE_KERNEL = (
    r"/proc/(filesystems|mounts|cpuinfo|meminfo|stat|uptime|loadavg|vmstat|interrupts|softirqs|swaps|locks|modules|devices|cmdline|cgroups|version|partitions"
    r"|diskstats|zoneinfo|buddyinfo|pagetypeinfo|slabinfo|mdstat|sysinfo|tty/.*|scsi/.*|bus/.*|driver/.*|fs/.*|lvm/.*"
    r"|net/.*|efi/.*|pressure/.*|key-users|iomem|ioports|dma|acpi/.*|irq/.*|sys/.*)|/sys(/.*)?"
)

HABITS: Final = (
    Habit(
        programs="*",
        reason="what the distribution installed: libraries, locales, time zones; none of it is the operator's",
        opens=r"/(usr/)?(lib(32|64|exec|x32)?|share)(/.*)?|/etc/ld\.so\.(cache|preload)|/etc/(localtime|timezone|machine-id|gcrypt/.*|os-release|lsb-release|debian_version|locale\.alias)",
    ),
    Habit(
        programs="*",
        reason="bash starts: its script, its user's name, its terminal",
        opens=r"/calls/\d+|/etc/(nsswitch\.conf|passwd)",
        writes=r"/dev/tty",
        sockets=r"(/var)?/run/nscd/socket",
    ),
    Habit(
        programs="*",
        reason="systemd's module of the name service looks for accounts",
        opens=r"(/etc|/run|/run/systemd|/run/host|/usr/lib|/usr/local/lib)/userdb(/.*)?",
        sockets=r"/run/systemd/userdb/.*",
    ),
    Habit(
        programs="*",
        reason="its own process, and what the kernel says of itself",
        opens=r"/proc/(self|\d+)/(maps|auxv|cgroup|mountinfo|mounts|limits|oom_score_adj|stat|status|fd)|/etc/group"
        rf"|{_OF_THE_KERNEL}|/dev/(null|urandom|random)",
        writes=r"/dev/null",
        changes=r"tgkill\((\d+), \1?.*, SIG(URG|PIPE)\b.*|tgkill\((\d+), \d+, SIGABRT\).*",  # Go's threads; abort()
    ),
    Habit(
        programs="hostname|curl|wget|dig|host|nslookup|getent|nc|ncat|netcat|ping|ping6|mtr|traceroute|traceroute6|tracepath|openssl"
        "|kubectl|mariadb-admin|mysqladmin|redis-cli|showmount|pg_isready|psql|mysql|mariadb|rpcinfo",
        reason="a name is looked up, and its host asked",
        opens=_NET,
        connects=True,
    ),
    Habit(
        programs="ps|pgrep|pidof|pstree|pidstat|top|lsof|fuser|ss|netstat|lvs|vgs|pvs|w|uptime|vmstat|iostat|mpstat|free|lsmod"
        "|lscpu|lshw|lspci|lsusb|lsblk|blkid|findmnt|sensors|numactl|java|systemctl|ifconfig|ip|sysctl|systemd-cgtop|iotop"
        "|dmidecode|mdadm|smartctl|nvme|sar|lsscsi|udevadm|ethtool|bridge|route|arp|conntrack|nproc|mount|loginctl",
        reason="the machine and its processes are what it shows",
        opens=_OF_PROCESSES,
    ),
    Habit(
        programs="w|uptime|who|users|last|lastlog|uname|top",
        reason="who is here, and was",
        opens=r"(/var)?/run/utmp|/var/log/(wtmp|btmp|lastlog)|/proc/uptime|/run/systemd/(sessions|users|seats)(/.*)?",
    ),
    Habit(
        programs="lsblk|blkid|lshw|lsusb|lspci|lvs|vgs|pvs|udevadm|smartctl|mdadm|nvme|lsscsi|sensors|iostat|dmidecode",
        reason="devices are what it shows",
        opens=r"/dev(/[\w/.:-]*)?|/run/(udev|blkid|mdadm)(/.*)?|/etc/(blkid\.conf|udev/.*|systemd/hwdb/.*|pci\.ids|sensors.*|sensors3\.conf|mdadm.*)|/devfs|/devices",
    ),
    Habit(
        programs="dmesg",
        reason="the kernel's ring buffer is what it shows",
        opens=r"/dev/kmsg",
        changes=r"syslog\(\S+ /\* SYSLOG_ACTION_(SIZE_BUFFER|READ_ALL|SIZE_UNREAD) \*/.*",
    ),
    Habit(
        programs="lspci|lsusb",
        reason="a cache of names that `lspci -q` would write",
        opens=r"/root/\.pciids-cache|/session/empty/\..*",
    ),
    Habit(programs="file", reason="its own descriptions of kinds of files", opens=r"/etc/magic(\.mgc)?"),
    Habit(programs="named-checkconf", reason="the configuration is what it checks", opens=r"/etc/bind/.*"),
    Habit(programs="lvs|vgs|pvs", reason="its configuration", opens=r"/etc/(lvm|multipath)(/.*)?|/etc/multipath\.conf"),
    Habit(
        programs="mariadb-admin|mysqladmin",
        reason="its configuration; the server of this machine",
        opens=r"/etc/mysql(/.*)?|/etc/my\.cnf.*",
        sockets=r"(/var)?/run/mysqld/mysqld\.sock",
    ),
    Habit(
        programs="pg_isready|psql",
        reason="Debian's wrapper chooses a version of the client; perl reads the shadow entry with the passwd entry",
        opens=r"/etc/postgresql(-common)?(/.*)?|/var/lib/postgresql(/.*)?|/etc/shadow|/etc/perl(/.*)?|/usr/local/(lib|share)/.*perl.*"
        r"|/session/empty/\.(postgresqlrc|postgresql/.*|pgpass|pg_service\.conf)",
        executes=r"/usr/lib/postgresql/\d+/bin/(pg_isready|psql)",
        sockets=r"(/var)?/run/postgresql/\.s\.PGSQL\.\d+|/tmp/\.s\.PGSQL\.\d+",
    ),
    Habit(
        programs="curl|wget|openssl|yq|lsb_release|certbot",
        reason="certificates of authorities, and the library's settings",
        opens=r"/etc/ssl(/.*)?|/etc/wgetrc|/etc/(gnutls|pki)/.*",
    ),
    Habit(
        programs="jq|yq|dig|rg|kubectl|curl",
        reason="looks for its settings in the home, which is empty",
        opens=r"/session/empty(/.*)?",
    ),
    Habit(
        programs="systemctl",
        reason="units are what it shows; the first process tells whether this is a container",
        opens=r"/(etc|run|usr/lib|usr/local/lib)/systemd(/.*)?|/proc/1/(environ|cmdline|comm)|/run/host(/.*)?|/etc|/run|/usr|/usr/local",
        sockets=r"(/var)?/run/(dbus/system_bus_socket|systemd/private)",
    ),
    Habit(
        programs="journalctl",
        reason="the journal is what it shows",
        opens=r"(/run|/var)/log/journal(/.*)?|/etc/machine-id|/proc/sys/kernel/random/boot_id",
    ),
    Habit(programs="sar", reason="the daily figures are what it shows", opens=r"/var/log/(sysstat|sa)(/.*)?"),
    Habit(
        programs="which|whereis|type",
        reason="the directories of programs are what it searches",
        opens=r"/(usr(/\w+)*|bin|sbin|opt(/bin)?|etc)(/[\w.+-]*)*",
    ),
    Habit(
        programs="netstat|ss|lsof|ifconfig|arp|route|ip|nft|iptables|iptables-save|bridge",
        reason="names of ports and tables",
        opens=r"/etc/(services|protocols|iproute2/.*|ethertypes|networks|hosts)",
    ),
    Habit(programs="wg", reason="its devices", opens=r"(/var)?/run/wireguard"),
    Habit(
        programs="zcat|zgrep|gunzip|bzcat|xzcat|zstdcat|egrep|fgrep|lsb_release|ntpstat|apache2ctl|apachectl|pg_isready|psql|service|whereis|yq|certbot|supervisorctl|firewall-cmd",
        reason="a script reads itself",
        opens=r"/usr/s?bin/\w[\w.+-]*|/etc/lsb-release|/usr/pyvenv\.cfg|/usr/local/lib/python.*",
    ),
    Habit(
        programs="zcat|gunzip|zgrep", reason="a script around gzip", executes=r"/usr/bin/(gzip|zcat|grep|sed|printf)"
    ),
    Habit(programs="egrep|fgrep", reason="a script around grep", executes=r"/usr/bin/grep"),
    Habit(
        programs="tar",
        reason="it unpacks by these programs, which get no file's name",
        executes=r"/usr/bin/(gzip|bzip2|xz|zstd|lzma|compress)",
    ),
    Habit(programs="lsb_release", reason="a script", executes=r"/usr/bin/(getopt|tr|cut|basename|which|dpkg|sed)"),
    Habit(programs="dig|host|nslookup", reason="names its threads", writes=r"/proc/self/task/\d+/comm"),
    Habit(
        programs="java",
        reason="its own memory and its statistics, in the temporary directory",
        opens=r"/tmp/hsperfdata_\w+|/etc/java.*",  # noqa: S108 - seen, not used
        writes=r"/proc/self/coredump_filter|/tmp/hsperfdata_\w+/\d+",
        changes=r"(mkdir|unlink|ftruncate|fchmod).*hsperfdata.*",
    ),
    Habit(programs="tee|wget|curl|[", reason="what it prints", writes=r"/dev/(stdout|stderr)|/proc/\d+/fd/\d+"),
    Habit(
        programs="find",
        reason="the files that it found are read by programs that are judged as if they were given them",
        executes=r"/usr/s?bin/(cat|head|tail|ls|stat|du|wc|grep|file|md5sum|sha256sum)",
    ),
    Habit(
        programs="fail2ban-client|ceph|pip|pip3|supervisorctl|ufw|firewall-cmd|certbot|yq|iotop|lsb_release|aws",
        reason="Python starts, and the script reads itself",
        opens=r"/usr(/bin)?/(pyvenv\.cfg|python[\w.]*\._pth|pybuilddir\.txt)|/usr/s?bin(/[\w.+-]+)?|/etc/ssl(/.*)?|/etc/python3.*"
        r"|/usr/local/lib/python.*|/session/empty/\.local(/.*)?",
    ),
    Habit(
        programs="busctl|coredumpctl|networkctl|resolvectl|nmcli|firewall-cmd|timedatectl|hostnamectl|loginctl|localectl"
        "|systemd-analyze|systemd-cgtop",
        reason="it asks a service of this machine over D-Bus",
        opens=r"/run/host(/.*)?|/run/systemd/(container|system|sessions|seats|users|netif|journal).*|/proc/1/(environ|sched)|/run/log/journal"
        r"|/var/log/journal|/etc/(machine-id|machine-info|hostname|systemd(/.*)?|NetworkManager(/.*)?|firewalld(/.*)?)|/run/NetworkManager.*",
        sockets=r"(/var)?/run/dbus/system_bus_socket|/run/systemd/.*",
    ),
    Habit(
        programs="dpkg|dpkg-query|apt|apt-cache",
        reason="packages are what it shows; it asks dpkg for the architectures",
        opens=r"/etc/(dpkg|apt)(/.*)?|/var/(lib|cache)/(dpkg|apt)(/.*)?|/session/empty/\.dpkg\.cfg|/etc/debian_version|/usr/bin/dpkg.*",
        executes=r"/usr/bin/dpkg(-query|-deb)?",
        writes=r"/tmp/file\w*|/session/tmp(/\w+)?",  # noqa: S108 - apt maps its cache in a file without a name
        changes=r"(unlink|fchmod|ftruncate)\(.*",
    ),
    Habit(
        programs="rpm|dnf|yum",
        reason="packages are what it shows; a macro of the distribution asks a shell for the home",
        opens=r"/etc/(popt|rpm|gcrypt)(/.*)?|/session/empty(/.*)?|/var/lib/rpm(/.*)?",
        executes=r"/bin/sh|/usr/bin/bash",
        changes=r"mkdir\(\"/session/empty/\.rpmdb\", 0755\) = -1 EROFS.*",
    ),
    Habit(
        programs="top|lsof|iotop",
        reason="looks for its settings in the home, which is empty and cannot be written",
        opens=r"/etc/top(rc|defaultrc)|/session/empty(/.*)?",
        changes=r"mkdir\(\"/session/empty/\.config(/procps)?\", 0700\) = -1 E(ROFS|NOENT).*",
    ),
    Habit(programs="kill", reason="it asks whether a process is there", changes=r"kill\(-?\d+, 0\).*"),
    Habit(programs="dig|host|nslookup", reason="it ends itself by a signal", changes=r"kill\((\d+), SIGTERM\).*"),
    Habit(
        programs="ps|systemd-cgtop|pgrep|top",
        reason="whether it is in a container is told by the first process",
        opens=r"/proc/\d+/environ|/dev/tty|/run/systemd/container|/run/host/.*",
    ),
    Habit(
        programs="logrotate",
        reason="its configuration and the logs are what it checks",
        opens=r"/etc/(popt|logrotate\.(conf|d|status)|popt\.d)(/.*)?|/session/empty/\.popt|/var/(log|lib/logrotate)(/.*)?",
    ),
    Habit(
        programs="nginx",
        reason="its configuration is what it checks, at tier 2, and for that it opens its logs",
        opens=r"/etc/(nginx|ssl|letsencrypt)(/.*)?",
        writes=r"(/var)?/run/nginx\.pid|/var/log/nginx/.*|/var/lib/nginx/.*",
        changes=r"(mkdir|chown|rmdir|unlink)\(\"/var/lib/nginx.*",
    ),
    Habit(
        programs="haproxy",
        reason="its configuration is what it checks; it looks up the names in it",
        opens=r"/etc/haproxy(/.*)?|" + _NET,
        connects=True,
    ),
    Habit(programs="named-checkconf", reason="its configuration is what it checks", opens=r"/etc/bind(/.*)?"),
    Habit(
        programs="snap",
        reason="it asks its daemon",
        opens=r"/var/lib/snapd/.*|/root/\.snap/.*|/session/empty/.*",
        sockets=r"/run/snapd(-snap)?\.socket",
    ),
    Habit(
        programs="virsh",
        reason="it asks its daemon, by the socket on which nothing can be changed",
        opens=r"/etc/libvirt(/.*)?",
        sockets=r"/var/run/libvirt/(libvirt-sock-ro|virtqemud-sock-ro|virtproxyd-sock-ro)",
    ),
    Habit(
        programs="supervisorctl",
        reason="it asks its daemon",
        opens=r"/etc/supervisor.*",
        sockets=r"(/var)?/run/supervisor\.sock",
    ),
    Habit(
        programs="fail2ban-client",
        reason="it asks its daemon",
        opens=r"/etc/fail2ban(/.*)?",
        sockets=r"/var/run/fail2ban/fail2ban\.sock",
    ),
    Habit(
        programs="chronyc",
        reason="it asks its daemon, by a socket of its own",
        writes=r"(?!)",
        changes=r"(unlink|chmod)\(\"/(var/)?run/chrony/chronyc\.\d+\.sock\".*",
        sockets=r"/(var/)?run/chrony/chronyd\.sock",
        connects=True,
        opens=_NET,
    ),
    Habit(programs="ntpstat|ntpq", reason="it asks the daemon of this machine", connects=True, opens=_NET),
    Habit(programs="fuser", reason="the resolver orders its own addresses", connects=True, opens=_NET),
    Habit(
        programs="lxc|incus|docker",
        reason="it asks its daemon",
        opens=r"/session/empty(/.*)?",
        sockets=r"/var/(lib|snap)/.*unix\.socket|/(var/)?run/docker\.sock",
    ),
    Habit(
        programs="ipmitool",
        reason="the interface of the hardware is opened for both",
        writes=r"/dev/ipmi(/|dev/)?\d+",
        opens=r"/session/empty/.*|/etc/iana.*",
    ),
    Habit(
        programs="ip",
        reason="it asks whether the kernel knows a message that names nothing",
        changes=r"sendto RTM_NEWLINK",
    ),
    Habit(programs="mtr", reason="it sends by a program of its own", executes=r"/usr/bin/mtr-packet"),
    Habit(programs="yq", reason="it is a script around jq", executes=r"/usr/bin/jq", opens=r"/session/empty(/.*)?"),
    Habit(
        programs="ufw",
        reason="it shows what iptables says",
        executes=r"/usr/sbin/ip6?tables",
        opens=r"/etc/(ufw|default|services|protocols)(/.*)?",
        writes=r"/run/ufw\.lock",
    ),
    Habit(
        programs="tac",
        reason="what cannot be read backwards is kept beside it",
        writes=r"/session/tmp/tac\w+",
        changes=r"unlink\(\"/session/tmp/tac\w+\"\).*",
    ),
    Habit(
        programs="mount|lshw",
        reason="names of devices without a directory are looked for in the working directory",
        opens=r"/session/work/[\w.-]+",
    ),
    Habit(
        programs="pip|pip3",
        reason="its settings, of which --isolated takes none",
        opens=r"/etc/pip\.conf|/etc/xdg(/.*)?|/session/empty(/.*)?",
    ),
    Habit(programs="pidof", reason="it complains to the system's log", writes=r"/dev/console", sockets=r"/dev/log"),
    Habit(programs="nice", reason="that is its task", changes=r"setpriority\(PRIO_PROCESS, 0, -?\d+\).*"),
    Habit(programs="timeout", reason="that is its task", changes=r"kill\((0|\d+), SIG\w+\b.*"),
    Habit(
        programs="ssh",
        reason="keys and hosts of its user, by the passwd entry; what is public of a named key; a jump is a second ssh",
        opens=r"/root/\.ssh(/.*)?|/etc/ssh(/.*)?|.*(\.pub|-cert)|" + _NET,
        executes=r"/bin/sh|/usr/bin/(ssh|bash|dash)",
        changes=r"mkdir\(\"/root/\.ssh\".*|kill\(\d+, SIG\w+\).*",
        connects=True,
    ),
    Habit(programs="lsof", reason="whether a file system answers", opens=r"/"),
    Habit(programs="lsof|ss", reason="an address that is short of four numbers goes through the resolver", opens=_NET),
    Habit(
        programs="service",
        reason="scripts that the machine's owner installed say how their services are, and run what they need for it",
        opens=r"/etc(/.*)?|/proc(/\d+/.*)?|/run(/.*)?|/var/(log|lib|run)(/.*)?|/usr/s?bin(/.*)?|/session/empty(/.*)?",
        executes=r"(/usr)?/s?bin/.*|/usr/lib/.*|/etc/init\.d/.*",
        writes=r"/dev/console|/var/log/btmp",
        sockets=r".*",
        connects=True,
        changes=r"kill\(-?\d+, 0\).*",
    ),
    Habit(
        programs="apachectl|apache2ctl",
        reason="a script of the distribution makes the directories of the server's locks",
        opens=r"/etc/(apache2|group|mime\.types|ssl)(/.*)?|" + _NET,
        executes=r"(/usr)?/s?bin/(id|mkdir|stat|mktemp|chmod|chown|rm|rmdir|apache2|install)",
        writes=r"/var/log/apache2/.*|(/var)?/run/apache2/.*",
        changes=r"(mkdir|rmdir|unlink|f?ch(own|mod)(at)?)\(.*",
        connects=True,
    ),
    Habit(
        programs="rabbitmqctl|rabbitmq-diagnostics",
        reason="a script of the distribution becomes the server's user, by su or runuser",
        opens=r"/etc/(pam\.d|security|login\.defs|default|rabbitmq|shadow|environment)(/.*)?|/etc/shadow|/usr/s?bin/.*|/root(/.*)?",
        executes=r"(/usr)?/s?bin/(sed|basename|id|su|runuser|grep|unix_chkpwd|bash|dash|sh|cat|dirname|readlink|rabbitmq\S*)",
        sockets=r"/dev/log|/run/systemd/.*",
        writes=r"/dev/console|/var/log/btmp",
        changes=r"setpriority\(.*",
    ),
    Habit(programs="ceph", reason="its settings", opens=r"/etc/(ceph|libnl)(/.*)?"),
    Habit(
        programs="sar",
        reason="it is fed by its collector",
        executes=r"/usr/lib/sysstat/sadc",
        opens=r"/etc/sensors.*|/dev/disk/by-id|/usr/lib/sysstat/.*",
    ),
    Habit(
        programs="ipvsadm",
        reason="the kernel's module is asked for, as root only",
        executes=r"/sbin/modprobe",
        opens=r"/etc/modprobe\.d(/.*)?",
    ),
    Habit(programs="lspci", reason="modules that may drive a device", opens=r"/etc/modprobe\.d(/.*)?"),
    Habit(
        programs="nft|conntrack|iptables|ip6tables",
        reason="names of labels and protocols",
        opens=r"/etc/(connlabel\.conf|iproute2/.*|protocols|services|ethertypes|xtables.*|nsswitch\.conf)",
    ),
    Habit(programs="ss|netstat", reason="the security context of a process", opens=r"/proc/\d+/attr/current"),
    Habit(programs="pidstat", reason="the memory of a process", opens=r"/proc/\d+/(smaps|task/\d+/schedstat)"),
    Habit(
        programs="mount|findmnt|lsblk|df|swapon",
        reason="what is mounted",
        opens=r"/etc/(fstab|mtab)|/run/mount/utab|/dev/[\w/-]+",
    ),
    Habit(
        programs="btrfs",
        reason="devices are what it shows",
        opens=r"/dev(/.*)?|/etc/blkid\.conf|/run/blkid/.*|/devfs|/devices",
    ),
    Habit(programs="sysctl", reason="settings of the kernel are what it shows", opens=r"/proc/sys|/etc/sysctl.*"),
    Habit(programs="lshw", reason="names of devices", opens=r"/usr/local/share/.*"),
    Habit(
        programs="systemctl",
        reason="units of the user, of whom there are none",
        opens=r"/session|/(session/empty|etc/xdg|usr/local/share)(/.*)?",
    ),
    Habit(
        programs="promtool|restic|kubectl|caddy|helm",
        reason="Go starts; programs beside it could be plug-ins of kubectl",
        opens=r"/etc/machine-id|/proc/self/cpuset|/proc/\d+/cpuset|/usr/s?bin|/s?bin|/opt/bin",
    ),
    Habit(
        programs="kubectl",
        reason="it compares two directories of its own making, by diff",
        executes=r"/usr/bin/diff",
        writes=r"/session/tmp/(LIVE|MERGED)-\d+/.*",
        changes=r"(mkdirat|unlinkat|mkdir)\(AT_FDCWD[^\"]*\"/session/tmp/(LIVE|MERGED)-.*",
    ),
)
"""In the order of the rules' files."""


def habits_of(program: str) -> tuple[Habit, ...]:
    """Return the habits of a program."""
    return tuple(habit for habit in HABITS if habit.programs == "*" or program in habit.programs.split("|"))


def fits(pattern: str, text: str) -> bool:
    """Whether an expression fits the whole of a text."""
    return re.fullmatch(pattern, text) is not None
