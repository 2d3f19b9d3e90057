"""What the neural speech engines share."""
