"""The calls, jobs and queue of dubbing, and webhooks."""
