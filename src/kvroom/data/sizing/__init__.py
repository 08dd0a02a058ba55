"""Facts for choosing hardware and checkpoints."""
