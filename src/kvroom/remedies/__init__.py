"""What to change, priced by the ledger."""
