"""What a session's stream has said, as values."""
