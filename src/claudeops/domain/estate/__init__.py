"""The estate: what the operator's manifests say exists, and what they forbid."""
