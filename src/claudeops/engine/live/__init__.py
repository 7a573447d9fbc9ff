"""What is told of sessions while they run, and the hub that tells it."""
