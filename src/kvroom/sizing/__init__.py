"""Which hardware and which checkpoint a need asks for, and what the KV cache costs: every figure from the ledger."""
