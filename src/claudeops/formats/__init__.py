"""Reads what others wrote: operators' files, manifests, senders' bodies, streams, reports. Pure."""
