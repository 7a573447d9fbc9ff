"""What the daemon is to do: looks by schedules and after actions, and what operators ask of it."""
