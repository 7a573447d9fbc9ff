"""What the gate decides beside the policy: grants, approvals, repetition, and the audit trail of it all."""
