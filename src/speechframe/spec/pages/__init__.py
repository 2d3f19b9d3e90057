"""The service document as pages: tables in Markdown, JSON Schema, OpenAPI."""
