"""Dispatchers: they wake a node when a session may be waiting in the queue."""
