"""One module a family of architectures: config fields -> the caches of each layer, as vLLM publishes them."""
