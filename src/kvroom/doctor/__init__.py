"""From a log to a diagnosis: what stopped the start, why, and which change would start it, priced by the ledger."""
