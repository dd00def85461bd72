"""The ledger: plans, runs and records measurements of claims."""
