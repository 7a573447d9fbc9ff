"""The looks that the daemon plans: by schedules, and after actions."""
