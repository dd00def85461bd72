"""A ledger, runs or probes as one self-contained page; a ledger as Markdown."""
