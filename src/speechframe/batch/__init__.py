"""Many calls of any backend: planned, paid within a budget, kept, and gone on with."""
