"""Times of the week as people write them; what is no time of every week is no window."""

from __future__ import annotations

import pytest

from claudeops.formats.estate.windows import window_in_sentence, windows_in
from support.understood import written

DAILY = "Mon,Tue,Wed,Thu,Fri,Sat,Sun"
READ = {
    "Sun 03:00-05:00": ["Sun 03:00-05:00"],
    "daily 02:00\u201302:20": [f"{DAILY} 02:00-02:20"],
    "Mon-Fri 22:00 to 06:00": ["Mon,Tue,Wed,Thu,Fri 22:00-06:00"],
    "Fri-Mon 1:00-2:00": ["Mon,Fri,Sat,Sun 01:00-02:00"],
    "every night from 02:00 to 02:20": [f"{DAILY} 02:00-02:20"],
    "Sundays 3am-5am": ["Sun 03:00-05:00"],
    "1-3pm Mon": ["Mon 13:00-15:00"],
    "12am-12pm Sat": ["Sat 00:00-12:00"],
    "Sat, Sun 03:00-05:00": ["Sat,Sun 03:00-05:00"],
    "03:00-05:00 on Sundays": ["Sun 03:00-05:00"],
    "03:00-05:00": [f"{DAILY} 03:00-05:00"],
    "between 22:00 and 23:00 on weekdays": ["Mon,Tue,Wed,Thu,Fri 22:00-23:00"],
    "weekends 01:00-02:00": ["Sat,Sun 01:00-02:00"],
    "Sun 03:00-05:00, Wed 04:00-04:30": ["Sun 03:00-05:00", "Wed 04:00-04:30"],
    "Sat/Sun 01:00-02:00; daily 05:00-05:10": ["Sat,Sun 01:00-02:00", f"{DAILY} 05:00-05:10"],
    "Sun 03:00-05:00 and 14:00-15:00": ["Sun 03:00-05:00", "Sun 14:00-15:00"],
    "00:00-24:00 Sun": ["Sun 00:00-00:00"],
}
UNREAD = [
    "first Sunday of the month 03:00-05:00",
    "every second Sunday 03:00-05:00",
    "Sun 03:00-05:00 UTC",
    "Sun 3-5",
    "Sun 25:00-26:00",
    "Sun 03:70-05:00",
    "13pm-14pm",
    "Sun 03:00-03:00",
    "weekends",
    "03:00-05:00 and 14:00-15:00 Sun",
    "whenever",
    "",
    "Sun 03:00-05:00; then some day",
]


@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=READ)
def test_a_window_is_read(text: str, expected: list[str]) -> None:
    windows = windows_in(text)
    assert windows is not None
    assert [written(window) for window in windows] == expected


@pytest.mark.parametrize("text", UNREAD)
def test_what_would_excuse_too_much_is_no_window(text: str) -> None:
    assert windows_in(text) is None


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Every night from 02:00 to 02:20 the shop answers 503: that is its backup.", f"{DAILY} 02:00-02:20"),
        ("It is down for maintenance on Sundays between 03:00 and 05:00.", "Sun 03:00-05:00"),
        ("On the first Sunday 03:00-05:00 it is down.", None),
        ("The shop is open daily 09:00-17:00.", None),
        ("It was down from 03:00 to 05:00 yesterday.", None),
        ("Backups once a month, on Sunday 03:00-05:00", None),
    ],
)
def test_a_sentence_tells_a_window_only_with_days_and_a_reason(sentence: str, expected: str | None) -> None:
    window = window_in_sentence(sentence)
    assert (written(window) if window else None) == expected
