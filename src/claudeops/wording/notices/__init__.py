"""Notices and questions, as a chat shows them."""
