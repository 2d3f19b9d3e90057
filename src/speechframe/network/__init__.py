"""Public addresses, the connections of a server, and the number of open connections and files."""
