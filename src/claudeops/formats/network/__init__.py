"""What a session's network and ssh are made of: headers, keys, hosts, as files name them."""
