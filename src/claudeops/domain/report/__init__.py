"""What a session concluded: found in its transcript, validated, turned into values."""
