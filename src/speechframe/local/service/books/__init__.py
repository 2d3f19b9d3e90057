"""What the service stores: keys, quotas, billed calls, clips."""
