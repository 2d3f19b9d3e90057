"""Start and end processes, tune their memory, run their event loop, and share slots between them."""
