"""Dubbing: the calls, the jobs and their queue, and webhooks."""
