"""Report: the ledger as one self-contained page and as the table of the README."""
