"""What can be told of a run afterwards, by listening to it.

- `alignment`: when each word of a text is heard in its audio
"""
