"""Every kind of channel has its module, and what the file of targets says of it is whole."""

from __future__ import annotations

import pytest

from claudeops.domain.notices.channels import CHANNELS, TargetKind
from claudeops.formats.notices import read_document
from claudeops.notify.channels import NoticeChannel, channel_of
from claudeops.text.toml_file import TomlFault


def test_the_table_has_every_kind_and_no_other() -> None:
    assert list(CHANNELS) == list(TargetKind)


@pytest.mark.parametrize("kind", TargetKind)
def test_a_kind_of_the_table_has_its_module(kind: TargetKind) -> None:
    assert isinstance(channel_of(kind, {}), NoticeChannel)


@pytest.mark.parametrize("kind", TargetKind)
def test_a_target_of_each_kind_is_told_which_of_its_keys_is_missing(kind: TargetKind) -> None:
    with pytest.raises(TomlFault, match="|".join(CHANNELS[kind].keys)):
        read_document(f'[[targets]]\nname = "a"\nkind = "{kind}"\n', timezone="UTC")
