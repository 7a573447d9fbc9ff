"""The manifests of repositories, read."""
