"""The translation engines Firefox Translations and Apertium, and the search for routes between languages."""
