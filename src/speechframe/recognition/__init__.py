"""Find the times of words in audio with a speech recogniser."""
