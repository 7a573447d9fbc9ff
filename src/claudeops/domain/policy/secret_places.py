"""What looks like a secret, as patterns. Nothing here is read at any tier, whoever asks for it, and wherever.

Plain values, so that people can read what is kept from a session. ``*`` stands for any text within one name; case does
not count. The answer to what looks like a secret is no; what may be read all the same is named one by one.
`claudeops.domain.policy.secret_names` adds the copies that editors, packagers and people leave behind.
"""

from __future__ import annotations

from typing import Final


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _below(directory: str, names: str) -> tuple[str, ...]:
    return tuple(f"{directory}/{name}" for name in names.split())


SECRET_TREES: Final = (
    "/proc",
    "/dev",
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
        "/var/lib", "systemd/coredump systemd/credential* pve-cluster snmp libvirt/secrets grafana jenkins private"
    ),
    *_below("/var", "snap/microk8s snap/lxd crash kerberos mail spool/mail"),
    *_below("/opt", "vault* etcd*"),
)
"""Directories and files, with everything below. A ``*`` at the end holds copies of them; it stands for nothing where
the directory that a path is relative to is not known."""

SECRET_FILES: Final = (
    *_below("/etc", "shadow* gshadow* master.passwd* spwd.db krb5.keytab* fstab.credentials* security/opasswd*"),
    *_below("/etc", "mysql/debian.cnf* wpa_supplicant/*.conf* docker/key.json* dovecot/dovecot-sql*"),
    *_below("/etc", "nslcd.conf* sssd/sssd.conf* ddclient.conf* snmp/snmpd.conf* msmtprc* ssmtp/ssmtp.conf*"),
)

READABLE: Final = (
    *_below(
        "/proc", "loadavg meminfo uptime mdstat cpuinfo stat diskstats vmstat version swaps partitions cmdline mounts"
    ),
    *_below(
        "/proc", "filesystems interrupts softirqs slabinfo buddyinfo net/dev pressure/cpu pressure/io pressure/memory"
    ),
    *_below("/dev", "null stdin stdout stderr fd/0 fd/63"),
)
"""Single files within those trees that hold no secret."""

READABLE_TREES: Final = ("/proc/sys", "/etc/kubernetes/manifests")

CERTIFICATE_TREES: Final = (
    *_below("/etc", "ssl/certs pki/tls/certs pki/ca-trust ca-certificates"),
    *_below("/usr", "share/ca-certificates local/share/ca-certificates share/pki lib/ssl/certs"),
)
"""Where public certificates are kept under names that elsewhere are those of keys."""

CERTIFICATE_NAMES: Final = _split("*.pem *.pem.* *.crt *.crt.* *.0")
"""What may be read there, if it has no other name of a secret."""

PUBLIC_NAMES: Final = _split(
    "*.pub *.crt *.cer *.csr cert*.pem *-cert.pem *_cert.pem chain*.pem fullchain*.pem ca.pem ca-*.pem *-ca.pem"
    " cacert*.pem *-chain.pem *-bundle.pem"
)
"""Public halves: these whole names may be read, if they hold no word of `SECRET_WORDS`."""

SECRET_WORDS: Final = _split(
    "*secret* *password* *passphrase* *.passwd* *credential* *private*key* *privkey* *token*"
    " .vault* *vault*.* *keyring* *kubeconfig* *.env* *htpasswd* *keyfile* *tfstate* *tfvars*"
    " *apikey* *api-key* *api_key*"
)
"""Words that make a name look like a secret's, wherever they stand in it."""

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
    *_split("environ *.core vmcore* *.hprof *.dmp *.acl tsig* rndc.conf* named.conf.keys"),
)
"""Names of files and directories, wherever they lie; a name here also covers what is below it."""

LOG_TREES: Final = ("/var/log",)
"""Directories that may be read recursively."""

SECRETLESS_KINDS: Final = _split("md rst log service timer socket target mount rules sh py tf j2 html css")
"""Kinds of files that may be searched without being named: whatever they are called, secrets are not kept in them."""

SEARCHED_KINDS: Final = _split("yaml yml json conf cfg ini toml txt xml csv")
"""Kinds in which secrets are kept as well: a search has to leave out the names that look like one."""

LEFT_OUT: Final = _split("*secret* *pass* *cred* *key* *token* *vault* *auth* *kubeconfig*")
"""What a search of those kinds has to leave out, of files and of directories."""

SHARED_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run/user")  # noqa: S108 - named in order to be avoided
"""Where other users can lay files for a command to trip over."""
