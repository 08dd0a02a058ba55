"""What changed between two starts: settings, ledger and pool side by side, and which setting moved which entry."""
