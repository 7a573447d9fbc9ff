"""Secret places and names, as patterns: what nothing may read at any tier, and what may be read all the same.

Plain values, so that people can read what is kept from sessions. ``*`` stands for any text within one name; case does
not count, since what is secret in one spelling is secret in all. Whatever looks like a secret is refused; exceptions
are listed one by one.

A copy is as secret as its original: ``shadow.bak``, ``.env~``, ``.#id_rsa``, ``.tls.key.swp``. So each pattern also
covers what editors put in front of a name, and whatever follows it after a dot, a dash, an underscore, a tilde or a
hash.

A path is a tuple of names; `ANY_DEPTH` stands for any number of them. Comparing two patterns never backtracks: the time
is at most the product of their lengths, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from claudeops.text import regex
from claudeops.text.glob import Overlaps, overlap

ANY_DEPTH: Final = "**"  # a name in a pattern that stands for any number of directories
LONGEST_NAME: Final = 255  # characters; no file system here has a longer one

_WILD: Final = "*?["

READABLE_TREES: Final = ("/proc/sys", "/etc/kubernetes/manifests")

LOG_TREES: Final = ("/var/log",)
"""Directories that may be read recursively."""

SHARED_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run/user")  # noqa: S108 - named in order to be avoided
"""Where other users can leave files that a command would use."""

_IN_FRONT: Final = r"(?:\.?#|\._|\.)?"
_BEHIND: Final = r"(?:[~#._-].*)?"
_COMPOSE: Final = ("compose*.yml", "compose*.yaml", "docker-compose*.yml", "docker-compose*.yaml")


def is_glob(text: str) -> bool:
    """Whether a text holds a wildcard."""
    return any(letter in text for letter in _WILD)


def before_glob(text: str) -> str:
    """Return the text in front of the first wildcard."""
    return next((text[:at] for at, letter in enumerate(text) if letter in _WILD), text)


@lru_cache(maxsize=4096)
def meet(left: tuple[str, ...], right: tuple[str, ...], *, hidden: bool | None = None) -> bool:
    """Whether one path can match both patterns; ``left`` comes from a command, ``right`` is one of ours.

    ``hidden``: a wildcard at the start matches a leading dot too, as find's do. By default that holds where
    `ANY_DEPTH` is on the left, which only comes from find.
    """
    dots = ANY_DEPTH in left if hidden is None else hidden
    if ANY_DEPTH in left[:1]:
        return meet(left[1:], right, hidden=dots) or (bool(right) and meet(left, right[1:], hidden=dots))
    if ANY_DEPTH in right[:1]:
        return meet(left, right[1:], hidden=dots) or (bool(left) and meet(left[1:], right, hidden=dots))
    if not left or not right:
        return not left and not right
    return may_match(left[0], right[0], hidden=dots) and meet(left[1:], right[1:], hidden=dots)


@lru_cache(maxsize=16384)
def may_match(left: str, right: str, *, hidden: bool = False) -> bool:
    """Whether some name matches both globs. A wildcard at the start of ``left`` matches no leading dot, as in bash.

    ``hidden``: it does match one, as in find. A set in brackets counts as any character.
    """
    if max(len(left), len(right)) > LONGEST_NAME:
        return True
    one, other = _letters(left), _letters(right)
    if not hidden and one[:1] in {"*", "?"} and other[:1] == ".":
        return False
    return overlap(one, other)


def covers(wide: str, narrow: str) -> bool:
    """Whether ``wide``, whose only wildcard may be ``*``, surely matches every name that ``narrow`` matches."""
    if "?" in wide or "[" in wide:
        return False
    return max(len(wide), len(narrow)) <= LONGEST_NAME and _matches(narrow.lower().replace("?", "\1"), wide.lower())


def _below(directory: str, names: str) -> tuple[str, ...]:
    return tuple(f"{directory}/{name}" for name in names.split())


SECRET_TREES: Final = (
    "/proc",
    "/dev",
    "/inet*",  # gawk connects to what is named so
    "/root/.*",
    "/home/*/.*",
    *_below(
        "/run",
        "secrets credentials credstore* containerd docker runc crun containers user cloud-init"
        " NetworkManager/*connections*",
    ),
    *_below("/var/run", "secrets credentials containerd docker runc crun containers user"),
    *_below("/usr/lib", "credstore*"),
    *_below("/etc", "ssl/private* pki/tls/private* sudoers* wireguard* openvpn* ipsec.d* swanctl* strongswan* ppp"),
    *_below("/etc", "kubernetes* rancher* etcd* credstore* cryptsetup-keys.d* claudeops NetworkManager/*connections*"),
    *_below("/etc", "containerd docker/certs.d cloud/cloud.cfg.d freeradius raddb hostapd* iscsi gitlab-runner"),
    *_below("/etc", "consul* nomad* vault* cloudflared* salt/pki openldap/slapd.d ldap/slapd.d pve/priv environment*"),
    *_below(
        "/var/lib", "kubelet* docker* containerd* containers* rancher* k0s* etcd* vault* consul* nomad* kubernetes*"
    ),
    *_below(
        "/var/lib", "postgresql* pgsql* mysql* mariadb* redis* mongo* influxdb* clickhouse* elasticsearch* cassandra*"
    ),
    *_below(
        "/var/lib", "cloud NetworkManager iwd bluetooth tailscale zerotier-one sss samba/private krb5kdc lxd* incus*"
    ),
    *_below(
        "/var/lib",
        "systemd/coredump systemd/credential* pve-cluster snmp libvirt/secrets vz/images grafana jenkins private",
    ),
    *_below("/var/lib/libvirt", "images qemu/save qemu/ram"),
    *_below("/var", "snap/microk8s snap/lxd crash kerberos mail spool/mail"),
    *_below("/opt", "vault* etcd*"),
)
"""Directories and files, with everything below. A ``*`` at the end covers their copies."""

SECRET_FILES: Final = (
    *_below("/etc", "shadow* gshadow* master.passwd* spwd.db krb5.keytab* fstab.credentials* security/opasswd*"),
    *_below("/etc", "mysql/debian.cnf* wpa_supplicant/*.conf* docker/key.json* dovecot/dovecot-sql* dovecot/users*"),
    *_below(
        "/etc", "nslcd.conf* sssd/sssd.conf* ddclient.conf* snmp/snmpd.conf* msmtprc* ssmtp/ssmtp.conf* nut/upsd.users*"
    ),
)

READABLE: Final = (
    *_below(
        "/proc", "loadavg meminfo uptime mdstat cpuinfo stat diskstats vmstat version swaps partitions cmdline mounts"
    ),
    *_below(
        "/proc", "filesystems interrupts softirqs slabinfo buddyinfo net/dev pressure/cpu pressure/io pressure/memory"
    ),
    *_below("/dev", "null stdin stdout stderr"),
)
"""Single files within those trees that hold no secrets."""

CERTIFICATE_TREES: Final = (
    *_below("/etc", "ssl/certs pki/tls/certs pki/ca-trust ca-certificates"),
    *_below("/usr", "share/ca-certificates local/share/ca-certificates share/pki lib/ssl/certs"),
)
"""Where public certificates have names that elsewhere belong to keys."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CERTIFICATE_NAMES: Final = _split("*.pem *.pem.* *.crt *.crt.* *.0")
"""Names that may be read there, unless they look like a secret in another way."""

PUBLIC_NAMES: Final = _split(
    "*.pub *.crt *.cer *.csr cert*.pem *-cert.pem *_cert.pem chain*.pem fullchain*.pem ca.pem ca-*.pem *-ca.pem"
    " cacert*.pem *-chain.pem *-bundle.pem"
)
"""Public halves of keys: these whole names may be read, unless they contain one of `SECRET_WORDS`."""

SECRET_WORDS: Final = _split(
    "*secret* *password* *passphrase* *.passwd* *credential* *private*key* *privkey* *token*"
    " .vault* *vault*.* *keyring* *kubeconfig* *.env* *htpasswd* *keyfile* *tfstate* *tfvars*"
    " *apikey* *api-key* *api_key*"
)
"""Words that make a name look like a secret's, anywhere in it."""

SECRET_NAMES: Final = (
    *SECRET_WORDS,
    # ssh, gpg, TLS
    *_split(".ssh id_rsa* id_dsa* id_ecdsa* id_ed25519* id_xmss* *_rsa *_dsa *_ecdsa *_ed25519 ssh_host_*"),
    *_split(".gnupg secring* trustdb* *.key *.keys *.pem *.p8 *.pk8 *.p12 *.pfx *.jks *.keystore *.truststore *.ppk"),
    *_split("*.priv *_key *-key *.keytab krb5cc_* acme.json master.key authkey* *.kdbx *.kdb .password-store .k5*"),
    # accounts and histories
    *_split(
        "shadow* gshadow* opasswd* *smbpasswd* passdb.tdb* .netrc* _netrc* .authinfo* authinfo* .pgpass* pgpass.conf"
    ),
    *_split(".my.cnf* .mylogin.cnf* .pg_service.conf* userlist.txt .git-credentials* .smbcredentials* sasl_passwd*"),
    *_split(
        "passwd.client* .msmtprc* .fetchmailrc* .muttrc* *-creds* *_creds* creds creds.* .creds* auth.json* .auth*"
    ),
    *_split("*_history* .*history* *histfile* .lesshst* .viminfo* _viminfo*"),
    # clouds, clusters, containers
    *_split(".aws .azure .gcloud .oci .kube .docker .podman .dockercfg* .dockerconfigjson .config .boto* .s3cfg*"),
    *_split("rclone.conf* .terraform* terraform.rc* *.tfplan* k3s.yaml* user-data* vendor-data* *instance-data-sens*"),
    *_split(
        "*kickstart* *preseed* *autoinstall* ks.cfg anaconda-ks.cfg questions.dat config.v2.json .credentials* .vmware"
    ),
    # languages, tools, applications
    *_split(
        ".npmrc* .yarnrc* .pypirc* .gem .cargo .m2 .composer .nuget .htdigest* wp-config* .erlang.cookie* *.cookie"
    ),
    *_split(".claude .claude.json* .codex .git .hg .svn database.yml local_settings.py *cookies* *.ovpn"),
    *_split("wg*.conf .mozilla .thunderbird logins.json key3.db key4.db"),
    *("login data*", "web data*"),
    *_split("swapfile* swap.img *.qcow2 *.vmdk *.vdi *.vhdx initrd* initramfs*"),
    *_split("*dump*.sql *.sql.gz *.sql.xz *.sql.zst dotenv*"),
    *_split("environ *.core vmcore* *.hprof *.dmp *.acl tsig* rndc.conf* named.conf.keys"),
)
"""Names of files and directories, wherever they are; a name also covers everything below it."""

SECRETLESS_KINDS: Final = _split("md rst log service timer socket target mount rules sh py tf j2 html css")
"""Kinds of files that may be searched without being named: whatever their names, they do not hold secrets."""

SEARCHED_KINDS: Final = _split("yaml yml json conf cfg ini toml txt xml csv")
"""Kinds that may hold secrets: a search must leave out the names that look like one."""

LEFT_OUT: Final = _split("*secret* *pass* *cred* *key* *token* *vault* *auth* *kubeconfig*")
"""What a search of those kinds must leave out, of files and of directories."""


@lru_cache(maxsize=16384)
def is_secret_name(name: str, *, hidden: bool = False) -> bool:
    """Whether a name, or some name that a glob matches, is one that secrets have.

    ``hidden``: the glob is one of find's, whose wildcards match a leading dot too.
    """
    if name == ANY_DEPTH:
        return False
    if len(name) > LONGEST_NAME:
        return True
    if not is_glob(name):
        return _is_secret(name.lower())
    letters = _letters(name)
    spellings, every, as_written, without_dot = _spellings()
    # What editors put in front of a name, a wildcard there matches anyway.
    counted = as_written if name.startswith(("*", "?")) else every
    if not hidden and letters.startswith(("*", "?")):  # in bash it matches no leading dot
        counted &= without_dot
    return spellings.any_with(letters, counted)


def is_certificate_name(name: str) -> bool:
    """Whether a name, or every name that a glob matches, may be read where public certificates are kept."""
    lowered = name.lower()
    return bool(_CERTIFICATES.fullmatch(lowered)) and not _BUT_KEYS.fullmatch(lowered)


def refuse_search(includes: Iterable[str], left_out: Iterable[str], left_out_below: Iterable[str]) -> str | None:
    """Return why a directory may not be searched for files of some names, or None.

    ``left_out`` are patterns of files that the search skips, ``left_out_below`` of directories.
    """
    kept, below = tuple(left_out), tuple(left_out_below)
    for include in includes:
        lowered = include.lower()
        kind = lowered.rpartition(".")[2]
        if is_glob(kind) or lowered.startswith(".") or _is_secret(lowered):
            return f"{include} could find secrets: name a kind of file, such as '*.service', or the files"
        if kind in SECRETLESS_KINDS or any(covers(name, lowered) for name in _COMPOSE):
            continue
        if kind not in SEARCHED_KINDS:
            return f"{include} is not a kind of file that may be searched: name the files"
        missing = [name for name in LEFT_OUT if not any(covers(out, name) for out in kept)]
        missing += [name for name in LEFT_OUT if not any(covers(out, name) for out in below)]
        if missing:
            return f"{include} could find secrets, which have to be left out"
    return None


def _letters(glob: str) -> str:
    """Return a glob in lower case, with ``?`` for each set in brackets and one ``*`` for several."""
    plain: list[str] = []
    at = 0
    while at < len(glob):
        end = glob.find("]", at + 2) if glob[at] == "[" else -1
        if glob[at] != "*" or plain[-1:] != ["*"]:
            plain.append("?" if end > 0 else glob[at])
        at = end + 1 if end > 0 else at + 1
    return "".join(plain).lower()


def _matches(name: str, glob: str) -> bool:
    """Whether a name matches a glob of plain characters and ``*``; a ``*`` in the name is a plain character."""
    first, *rest = glob.split("*")
    if not rest:
        return name == glob
    if not name.startswith(first) or not name[len(first) :].endswith(rest[-1]):
        return False
    at, end = len(first), len(name) - len(rest[-1])
    for piece in rest[:-1]:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end


def _expression(globs: Iterable[str]) -> str:
    return "|".join(".*".join(map(regex.escape, glob.split("*"))) for glob in globs)


_NAMES: Final = regex.Pattern(f"(?s){_IN_FRONT}(?:{_expression(SECRET_NAMES)}){_BEHIND}")
_BUT_KEYS: Final = regex.Pattern(
    f"(?s){_IN_FRONT}(?:{_expression(name for name in SECRET_NAMES if name != '*.pem')}){_BEHIND}"
)
_WORDS: Final = regex.Pattern("(?s)" + _expression(SECRET_WORDS))
_PUBLIC: Final = regex.Pattern("(?s)" + _expression(PUBLIC_NAMES))
_CERTIFICATES: Final = regex.Pattern("(?s)" + _expression(CERTIFICATE_NAMES))


def _is_secret(name: str) -> bool:
    if not _NAMES.fullmatch(name):
        return False
    return not (_PUBLIC.fullmatch(name) and not _WORDS.fullmatch(name))


@cache
def _spellings() -> tuple[Overlaps, int, int, int]:
    """Return the names of secrets as editors spell them, and which of them are all, as written, and without a dot.

    Every name is taken with ``*`` after it, which covers everything that may follow it, and more. Globs alone need
    them, and they take as long to put together as ten modules to import.
    """
    written = frozenset(f"{secret.rstrip('*')}*" for secret in SECRET_NAMES)
    spellings = Overlaps(f"{front}{secret}" for front in ("", ".", "#", ".#", "._") for secret in sorted(written))
    return (
        spellings,
        spellings.starting(lambda _: True),
        spellings.starting(written.__contains__),
        spellings.starting(lambda secret: not secret.startswith(".")),
    )
