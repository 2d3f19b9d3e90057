"""Backends turn rows into calls and answers into records. Each verb's file has the rest of its backend."""
