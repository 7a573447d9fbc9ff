"""What a session is locked into: its directories, its user, its namespaces."""
