"""Logins by OpenID Connect. Imported only where a provider is configured: its libraries are an extra."""
