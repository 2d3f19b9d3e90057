"""The records that the service stores on disk: keys, quotas, billed calls and audio files."""
