"""Findings about a launch's settings (codes KVR1xx), one module each; the catalogue lists them."""
