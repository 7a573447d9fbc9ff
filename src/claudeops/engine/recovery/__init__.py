"""What follows from the logs of sessions whose daemon died."""
