"""What logs of this machine measured, kept for later predictions."""
