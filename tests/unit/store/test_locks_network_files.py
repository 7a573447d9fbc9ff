"""A SQLite file where its locks do not hold is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from claudeops.errors import ConfigurationError
from claudeops.store.locks import filesystem_of, refuse_network_file

LISTED = r"""22 1 0:20 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:31 / /mnt rw shared:7 - nfs4 server:/export rw
31 22 0:32 / /mnt/local rw - xfs /dev/sdb1 rw
32 22 0:33 / /media/two\040words rw - cifs //server/share rw
33 22 0:34 / /over rw - ext4 /dev/sdc1 rw
34 33 0:35 / /over rw - fuse.sshfs ann@host: rw
35 22 0:36 / /nfs-like rw - btrfs /dev/sdd rw
no mount at all
"""


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/mnt/state/claudeops.db", "nfs4"),
        ("/media/two words/claudeops.db", "cifs"),
        ("/over/claudeops.db", "fuse.sshfs"),
    ],
)
def test_a_file_on_a_network_file_system_is_refused_with_the_remedy(tmp_path: Path, file: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(LISTED, encoding="utf-8")

    with pytest.raises(ConfigurationError) as refused:
        refuse_network_file(Path(file), mounts=mounts)

    assert file in str(refused.value)
    assert f"({kind}," in str(refused.value)
    assert "PostgreSQL" in str(refused.value)


@pytest.mark.parametrize("file", ["/var/lib/claudeops.db", "/mnt/local/claudeops.db", "/mntx/a.db", "/nfs-like/a.db"])
def test_a_file_on_a_disk_of_this_machine_is_taken(tmp_path: Path, file: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(LISTED, encoding="utf-8")

    refuse_network_file(Path(file), mounts=mounts)
    refuse_network_file(Path(file), mounts=tmp_path / "not there")


def test_this_machines_own_mounts_are_read(tmp_path: Path) -> None:
    kind, where = filesystem_of(tmp_path, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))

    assert kind
    assert tmp_path.is_relative_to(where)
