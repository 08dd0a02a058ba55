"""The catalogue of accelerators as data."""
