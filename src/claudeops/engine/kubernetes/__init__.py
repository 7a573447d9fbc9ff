"""The filter before the clusters of a kubeconfig: a process of its own that speaks their API over HTTPS."""
