"""One launch with its prediction, remedies and findings."""
