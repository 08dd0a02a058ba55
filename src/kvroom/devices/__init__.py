"""What a launch runs on: the catalogue of accelerators, the ways people name them, and a probe."""
