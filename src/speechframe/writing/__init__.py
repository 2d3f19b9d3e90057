"""Words for people, and new files that replace none."""
