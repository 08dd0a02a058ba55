"""Measurements and the demo; nothing here is part of the installed package."""
