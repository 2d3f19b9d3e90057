"""Read tables of many kinds as Arrow batches with an id for each row."""
