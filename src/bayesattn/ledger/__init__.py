"""The ledger: plan, do and record measurements of claims."""
