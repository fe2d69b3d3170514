"""Session files and wire logs of existing agents, read without changing or trusting them.

What is read here is evidence of what an agent did and of what a model saw. It never grants anything.
"""
