"""The gate: each tool call is judged before it runs, by the policy or by a person."""
