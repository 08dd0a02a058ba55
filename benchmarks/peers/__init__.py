"""Other planners on the launches that ``benchmarks.accuracy`` scores: ``python -m benchmarks.peers --corpus DIR``.

Each peer is asked in its own process and its own environment, through an adapter (``adapters/``) that speaks JSON
lines.
``peers.json`` says which peers, which versions, what each takes and gives, and how it was asked.
"""
