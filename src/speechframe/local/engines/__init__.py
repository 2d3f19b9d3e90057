"""The engines of the local service. Each is found through an entry point, like an engine of your own."""
