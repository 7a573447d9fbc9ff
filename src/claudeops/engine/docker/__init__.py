"""The filter before docker's engine: what a session reaches of it, and a process of its own that speaks its API."""
