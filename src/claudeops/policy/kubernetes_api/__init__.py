"""The pure half of the filter in front of the Kubernetes API: what passes, what is changed, what an answer shows."""
