"""The voice changer WORLD, which keeps timing and accent."""
