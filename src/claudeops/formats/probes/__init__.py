"""Probes as operators and manifests declare them."""
