"""What the backends of the verbs share, and parts of single backends that are ideas of their own."""
