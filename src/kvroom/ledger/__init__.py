"""The budget of one launch: entries, pool, verdict."""
