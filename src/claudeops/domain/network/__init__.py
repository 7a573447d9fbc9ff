"""What a session's own network holds: the list of hosts and ports that it may connect to."""
