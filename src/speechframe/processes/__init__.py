"""Processes of this machine: start and end, memory, the event loop, and slots that processes share."""
