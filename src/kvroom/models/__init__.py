"""What is served: config.json to layers, weights and caches."""
