"""The translation engines Firefox Translations and Apertium, and the routes between languages."""
