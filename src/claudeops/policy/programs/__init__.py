"""What single programs may be given, where a rule cannot say it: fixed forms, and small languages in arguments."""
