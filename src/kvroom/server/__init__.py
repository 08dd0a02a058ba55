"""An OpenAI-compatible server seen from outside: what it says, what it serves, and where it stops."""
