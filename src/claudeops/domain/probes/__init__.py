"""Probes: looks at services that the daemon takes itself, without a model and so at no cost."""
