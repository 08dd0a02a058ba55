"""Where a trial runs: this machine, a container, a node of a Ray cluster."""
