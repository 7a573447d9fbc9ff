"""What the gate decides beside the policy: approvals, grants, repetition, the audit trail."""
