"""Configs of published models."""
