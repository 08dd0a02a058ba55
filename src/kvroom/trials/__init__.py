"""Trials: the real server launched again and again, one change at a time, and what came of it."""
