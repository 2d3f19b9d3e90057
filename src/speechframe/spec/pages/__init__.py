"""The service document as tables in Markdown, JSON Schema and OpenAPI."""
