"""Who may call the daemon over the network."""
