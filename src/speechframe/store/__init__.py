"""Run folders: what a run asked for, what came of it, and what it cost."""
