"""Where secrets usually lie. Nothing here is read at any tier, whoever asks for it.

Plain values, so that a policy file can carry them. ``*`` stands for any text within one name.
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
    "/run/secrets",
    "/var/run/secrets",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/kubernetes/pki",
    "/etc/wireguard",
    "/etc/claudeops",
    "/etc/sudoers.d",
    "/etc/NetworkManager/system-connections",
    "/var/lib/kubelet",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/rancher",
    "/var/lib/postgresql",
    "/var/lib/mysql",
    "/var/lib/redis",
    "/var/lib/vault",
    "/root/.*",
    "/home/*/.*",
)
"""Directories and files, with everything below."""

SECRET_FILES: Final = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/krb5.keytab",
    "/etc/kubernetes/admin.conf",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/fstab.credentials",
    "/etc/security/opasswd",
    "/etc/mysql/debian.cnf",
    "/etc/wpa_supplicant/wpa_supplicant.conf",
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

READABLE_TREES: Final = ("/proc/sys",)

SECRET_NAMES: Final = _split(
    ".ssh .aws .gnupg .kube .docker .azure .gcloud .password-store .netrc _netrc .pgpass .my.cnf .mylogin.cnf"
    " .git-credentials .npmrc .pypirc .vault-token .htpasswd .env *.env .bash_history .claude .claude.json"
    " .terraformrc *.key *.pem *.p12 *.pfx *.jks *.keystore *.keytab *.kdbx *.ppk *.kubeconfig kubeconfig"
    " acme.json master.key credentials credentials.json credentials.yml credentials.yaml id_rsa id_dsa id_ecdsa"
    " id_ed25519 htpasswd secrets secret secrets.yml secrets.yaml secrets.json secrets.env *-secrets *-secrets.*"
    " *.secret *.secrets *password* sasl_passwd* .vault_pass* *.tfvars terraform.tfstate k3s.yaml wp-config.php"
    " rclone.conf .s3cfg .boto .dockercfg *.ovpn environ *_history shadow gshadow .git"
)
"""Names of files and directories, wherever they lie; a name here also covers what is below it."""

SECRET_PREFIXES: Final = (
    "credentials",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".env",
    "secrets.",
    "terraform.tfstate",
)
"""Names that begin like this."""

LOG_TREES: Final = ("/var/log",)
"""Directories that may be read recursively."""

SHARED_TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run/user")  # noqa: S108 - named in order to be avoided
"""Where other users can lay files for a command to trip over."""
