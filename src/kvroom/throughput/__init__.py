"""How fast a launch serves: a roofline over weights, KV cache and arithmetic, with factors fitted on measured runs."""
