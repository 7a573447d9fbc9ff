"""How a probe looks: one function a kind, from what is asked to what was seen, bounded whatever the service does."""
