"""Rules that say how a text is read: numbers, names of letters, Roman numerals, pieces between pauses."""
