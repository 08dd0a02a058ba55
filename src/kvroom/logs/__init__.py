"""What a vLLM log says: lines of any shape become facts, facts become a reading."""
