"""HTTP of the local service: requests, forms, answers, keys of callers, limits of connections."""
