"""Words with their times, found in audio by a recogniser."""
