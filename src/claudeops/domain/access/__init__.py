"""Who calls the daemon over the network, and what each may do."""
