"""Alerts: what monitoring systems tell the daemon, what is decided about it, and the incidents that follow."""
