"""claudeops: a daemon that keeps watch over infrastructure with tiered, gated ``claude`` sessions."""

__version__ = "0.9.0"
