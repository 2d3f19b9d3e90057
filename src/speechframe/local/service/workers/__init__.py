"""Worker processes, their queues, and the jobs that they run."""
