"""Shared parts of backends, which turn rows into calls and answers into records.

The file of each verb in ``verbs`` has the rest of its backend.
"""
