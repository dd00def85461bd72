"""The command line: one file for each noun; only these files parse and print."""
