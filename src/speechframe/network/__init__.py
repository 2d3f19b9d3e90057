"""Network addresses that are public, and the connections of a server."""
