"""Reading what is planned: when schedules fire, and which notices are on their way."""
