"""A file of schedules: what it means, and the line of everything that is wrong with it."""

from __future__ import annotations

from typing import Final

import pytest

from claudeops.domain.schedules import Cron, Interval, Schedule
from claudeops.domain.schedules.plan import Overlap, SchedulePlan
from claudeops.domain.schedules.windows import read_window
from claudeops.formats.schedules import Surroundings, read_plans
from claudeops.text.toml_file import TomlFault

WHOLE: Final = """
[[schedule]]
name = "hourly"
interval = "1h"
jitter = "5m"

[[schedule]]
name = "nightly-db"
cron = "30 3 * * mon-fri"
timezone = "Europe/Berlin"
tier = 2
prompt = "Look at the backups of the last night."
services = ["db", "backup", "db"]
budget_usd = 0.2
site = " harbour "
quiet_hours = ["sat-sun 00:00-24:00", "22:00-23:00"]
overlap = "queue"
misfire_grace = 7200
enabled = false
"""


def no_file(name: str) -> str:
    raise ValueError(f"{name} does not exist: put it there")


AROUND: Final = Surroundings(
    highest_tier=3, timezone="America/New_York", site="one", prompt_file=no_file, origin="/etc/schedules.toml"
)


def test_every_key_has_its_meaning_and_its_default() -> None:
    hourly, nightly = read_plans(WHOLE, AROUND)
    assert hourly == SchedulePlan(
        schedule=Schedule(name="hourly", cadence=Interval(seconds=3600), jitter_seconds=300, site="one"),
        timezone="America/New_York",
        origin="/etc/schedules.toml:2",
    )
    assert nightly == SchedulePlan(
        schedule=Schedule(
            name="nightly-db", cadence=Cron(expr="30 3 * * mon-fri", timezone="Europe/Berlin"), site="one"
        ),
        timezone="Europe/Berlin",
        tier=2,
        prompt="Look at the backups of the last night.",
        services=("db", "backup"),
        budget_usd=0.2,
        site="harbour",
        quiet_hours=(read_window("sat-sun 00:00-24:00"), read_window("22:00-23:00")),
        overlap=Overlap.QUEUE,
        grace_seconds=7200,
        begins_at_once=False,
        enabled=False,
        origin="/etc/schedules.toml:7",
    )


def test_a_prompt_may_come_from_a_file_beside() -> None:
    text = '[[schedule]]\nname = "a"\ninterval = 60\nprompt_file = "night.md"\nquiet_hours = "22:00-06:00"'
    around = Surroundings(highest_tier=1, prompt_file=lambda name: f"text of {name}")
    (plan,) = read_plans(text, around)
    assert plan.prompt == "text of night.md"
    assert len(plan.quiet_hours) == 1


@pytest.mark.parametrize(
    ("line", "number", "sentence"),
    [
        ("cronn = 1", 4, "the key 'cronn' is not known here: did you mean 'cron'?"),
        ("tier = 4", 4, "there is no tier 4: tiers go from 1 to 3"),
        ("tier = true", 4, "tier: Expected 'int', got 'bool'"),
        ("cron = '* * * * *'", 4, "a schedule has either a crontab line or an interval: leave one of them out"),
        ("jitter = '1h'", 4, "a jitter of 3600 s is not below the 3600 s between two due times: lower it"),
        ("jitter = 'soon'", 4, "'soon' is not a duration: write a number with s, m, h or d, such as '15m'"),
        ("misfire_grace = '9999999999999d'", 4, "is not a duration: give 0 to 366 days"),
        ("misfire_grace = nan", 4, "nan s is not a duration: give 0 to 366 days"),
        ("timezone = 'Europe/Nowhere'", 4, "the time zone 'Europe/Nowhere' is not known"),
        ("overlap = 'maybe'", 4, "overlap: Invalid enum value 'maybe'"),
        ("budget_usd = 0", 4, "a budget of 0 US dollars cannot be kept: give 0.01 or more"),
        ("site = ' '", 4, "an empty name is no site: leave it out, and a node of any site may run it"),
        ("budget_usd = nan", 4, "a budget of nan US dollars cannot be kept"),
        ("quiet_hours = ['22-6']", 4, "'22-6' is not a window"),
        ("services = ['']", 4, "an empty name is no service: leave it out"),
        ("prompt = 'x'\nprompt_file = 'y'", 5, "either a prompt or a file with one: leave one of them out"),
        ("prompt_file = 'y'", 4, "y does not exist: put it there"),
        ("[[schedule]]\nname = 'a'\ninterval = 60", 5, "there is another schedule 'a'"),
        ("[[schedule]]\nname = 'b c'\ninterval = 60", 5, "'b c' is not a name"),
        ("[[schedule]]\nname = 'b'", 4, "a schedule has either a crontab line or an interval: give 'cron'"),
        ("[[schedule]]\ninterval = 60", 4, "Object missing required field 'name'"),
        ("[[schedule]]\nname = 'b'\ncron = '61 * * * *'", 6, "the cron expression '61 * * * *' cannot be read"),
        ("[[schedule]]\nname = 'b'\ncron = '0 0 30 2 *'", 6, "the cron expression '0 0 30 2 *'"),
        ("[[schedule]]\nname = 'b'\ninterval = 0.5", 6, "an interval of 0.5 s cannot be kept: give a second or more"),
        ("[[schedule]]\nname = 'b'\ncron = '* * * * *'\njitter = 60", 7, "a jitter of 60 s is not below the 60 s"),
        ("[schedules]", 4, "the key 'schedules' is not known here: schedules stand under [[schedule]]"),
        ("tier = ", 4, "this is not TOML"),
    ],
)
def test_a_fault_has_its_line_and_a_remedy(line: str, number: int, sentence: str) -> None:
    text = f"[[schedule]]\nname = 'a'\ninterval = '1h'\n{line}\n"
    with pytest.raises(TomlFault) as fault:
        read_plans(text, AROUND)
    assert sentence in str(fault.value)
    assert fault.value.line == number
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("text", ["", "schedule = 3", "schedule = [3]", "a = " + "[" * 3000])
def test_what_is_no_file_of_schedules_is_refused(text: str) -> None:
    with pytest.raises(TomlFault):
        read_plans(text, AROUND)


def test_a_file_cannot_grow_without_end() -> None:
    text = "".join(f"[[schedule]]\nname = 'n{number}'\ninterval = 60\n" for number in range(201))
    with pytest.raises(TomlFault, match="more than 200"):
        read_plans(text, AROUND)
