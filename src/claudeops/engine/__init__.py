"""What runs: scheduler, supervisor, sessions, processes, gate."""
