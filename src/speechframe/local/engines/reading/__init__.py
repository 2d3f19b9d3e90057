"""Prepare texts for speech: numbers, unreadable letters, Roman numerals, pauses and word times."""
