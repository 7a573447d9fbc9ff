"""Alerts: what monitoring systems send, what is decided about it, and the incidents that follow."""
