"""The engines of the local service. Each is found through an entry point, as engines of users are."""
