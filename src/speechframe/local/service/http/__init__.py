"""HTTP of the local service: bodies, forms, answers, keys of callers, and limits of connections."""
