"""Child processes, the end of this process, memory, the event loop, and slots that processes share."""
