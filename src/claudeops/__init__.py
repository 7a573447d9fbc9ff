"""claudeops: a daemon that keeps watch over infrastructure with tiered, gated ``claude`` sessions."""
