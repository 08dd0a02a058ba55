"""Facts as files, each with its source."""
