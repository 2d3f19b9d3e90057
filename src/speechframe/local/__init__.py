"""The embedded local service, its engines and its dubbing. Everything else calls it over HTTP."""
