"""What a daemon does beside running sessions: housekeeping, lease, status, commands from operators."""
