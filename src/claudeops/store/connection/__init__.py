"""The way to a database: its engines, and the one thread that writes."""
