"""Base classes and value types of the document's models."""
