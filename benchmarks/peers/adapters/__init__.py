"""One script for each peer, run by the Python of that peer's environment; only ``protocol`` is shared."""
