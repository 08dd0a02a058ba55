"""What runs inside an environment that holds vLLM: its own worker on a pretended card.

Only this folder is loaded there, under a name of its own, so it imports nothing else of kvroom.
"""
