"""The sentences that people and models get: prompts, notices, approvals, live lines. Pure."""
