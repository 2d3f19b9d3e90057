"""The voice changer WORLD. It keeps the timing and the accent of a clip."""
