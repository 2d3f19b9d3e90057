"""Text for people, and writing of new files that never replace existing files."""
